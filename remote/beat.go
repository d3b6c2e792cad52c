package remote

import (
	"context"
	"fmt"
	"time"
)

// MaxBeatTTL bounds how long a node may count as alive without a beat.
const MaxBeatTTL = 24 * time.Hour

// Beat is Redis' answer to a heartbeat.
type Beat struct {
	// Nodes is the number of live nodes, this one included.
	Nodes int
	// Now is Redis' time since the Unix epoch, whole µs.
	Now time.Duration
	// Seqs[i] is the last batch of this node that shards[i] knows; 0 if it
	// knows none, -1 if it could not be asked.
	Seqs []int64
	// Times[i] is the time of the server of shards[i], like Now; 0 if it could
	// not be asked.
	Times []time.Duration
}

// Beat says that a node is alive and counts as such for ttl (at least 1 ms, at
// most [MaxBeatTTL]) from now, counts all that are, and asks the given shards
// what they know of this node and whether they take writes, all in one
// pipeline.
//
// The beat and the shards may live on different servers. When only some of them
// answered, the error says what failed and the Beat holds what is known: Nodes
// is 0 if the beat itself failed.
func (s *Store) Beat(ctx context.Context, node string, ttl time.Duration, shards []int) (Beat, error) {
	if err := s.checkNode(node, shards); err != nil {
		return Beat{}, err
	}
	if ttl < time.Millisecond || ttl > MaxBeatTTL {
		return Beat{}, fmt.Errorf("remote: a heartbeat for %v, must be 1 ms to %v", ttl, MaxBeatTTL)
	}
	calls := make([]*call, 0, 1+len(shards))
	calls = append(calls, &call{script: scriptBeat, keys: []string{s.srv.keys.NodesKey()}, args: []any{node, ttl.Milliseconds()}})
	for _, shard := range shards {
		calls = append(calls, &call{
			script: scriptSeq,
			keys:   []string{s.srv.keys.SeqKey(shard, node)},
			args:   []any{ledgerTTL.Milliseconds()},
		})
	}
	s.srv.pipeline(ctx, calls)
	return decodeBeat(calls)
}

func decodeBeat(calls []*call) (Beat, error) {
	b := Beat{Seqs: make([]int64, len(calls)-1), Times: make([]time.Duration, len(calls)-1)}
	r := newReply(calls[0])
	nodes, now := r.number(maxExact), r.now()
	first := r.end()
	if first == nil {
		b.Nodes, b.Now = int(nodes), now
	}
	for i, c := range calls[1:] {
		r := newReply(c)
		b.Seqs[i], b.Times[i] = r.number(maxExact), r.now()
		if err := r.end(); err != nil {
			b.Seqs[i], b.Times[i] = -1, 0
			if first == nil {
				first = err
			}
		}
	}
	return b, first
}

// newReply returns a reader of a call's reply, which carries its error.
func newReply(c *call) *reader {
	if c.err != nil {
		return &reader{err: wrap(c.err)}
	}
	return newReader(c.val)
}

// keepLedgers is how long a node's ledgers outlive it, in ms, so that a stray
// copy of one of its batches is still known.
const keepLedgers = 60_000

// Leave takes a node out of the live ones, and lets Redis forget its ledgers in
// the given shards a minute later.
func (s *Store) Leave(ctx context.Context, node string, shards []int) error {
	if err := s.checkNode(node, shards); err != nil {
		return err
	}
	calls := []*call{{args: []any{"zrem", s.srv.keys.NodesKey(), node}}}
	for _, shard := range shards {
		calls = append(calls, &call{args: []any{"pexpire", s.srv.keys.SeqKey(shard, node), keepLedgers}})
	}
	s.srv.pipeline(ctx, calls)
	for _, c := range calls {
		if c.err != nil {
			return wrap(c.err) // the others will hardly say anything else
		}
	}
	return nil
}

func (s *Store) checkNode(node string, shards []int) error {
	if !validNode(node) {
		return fmt.Errorf("remote: node %.80q: must be 1 to %d letters, digits, '-' or '_'", node, MaxNodeBytes)
	}
	for _, shard := range shards {
		if shard < 0 || shard >= s.srv.keys.Shards() {
			return fmt.Errorf("remote: shard %d of %d", shard, s.srv.keys.Shards())
		}
	}
	return nil
}
