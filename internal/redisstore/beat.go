package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Beat is Redis' answer to a heartbeat.
type Beat struct {
	// Nodes is the number of live nodes, this one included.
	Nodes int
	// Now is Redis' time since the Unix epoch, whole µs.
	Now time.Duration
	// Seqs[i] is the number of this node's last batch in shards[i]; 0 if it has
	// none, -1 if it could not be asked.
	Seqs []int64
	// Errs[i] says why shards[i] could not be asked; nil if it could.
	Errs []error
	// Times[i] is the time of the server of shards[i], like Now; 0 if it could
	// not be asked.
	Times []time.Duration
	// Others are the layouts that other processes use here, see [Keyspace.Layout], at
	// most 10.
	Others []string
	// Channel is the id of the channel for notices in this database, see
	// [Keyspace.NoticeChannel]: "" if none was offered, or if its key is broken.
	Channel string
	// EchoErr says why the echo was not published.
	EchoErr error
}

// BeatOptions are optional parts of a heartbeat. The zero value has none.
type BeatOptions struct {
	// Offer becomes the id of the channel for notices if it has none yet: 1 to 40 letters
	// and digits, different for every node. Empty: the id is neither set nor returned.
	Offer string
	// Echo is published on EchoChannel, unless that is empty, via the master of shard EchoVia.
	Echo, EchoChannel string
	EchoVia           int
	// About is what the node says about itself, for tools. Whether it arrives does not matter.
	About *About
}

// maxChannelBytes bounds the id of a channel. lua/beat.lua has the same bound.
const maxChannelBytes = 40

// validChannel reports whether a text may be the id of a channel.
func validChannel(id string) bool {
	return validNode(id) && len(id) <= maxChannelBytes && !strings.ContainsAny(id, "-_")
}

// clusterChannel is the id of the channel on a Cluster, which has one database only. So nobody needs to
// ask for it, and notices do not depend on the master of its key.
const clusterChannel = "cluster"

// KnownChannel returns the id of the channel for notices if it is known without asking, else "".
func (s *Store) KnownChannel() string {
	if s.cluster {
		return clusterChannel
	}
	return ""
}

// Channel returns the name of the channel for notices, "" if there is none, or if it is
// unknown.
func (s *Store) Channel(ctx context.Context) string {
	if id := s.KnownChannel(); id != "" {
		return s.keys.NoticeChannel(id)
	}
	c := &call{args: []any{"get", s.keys.ChannelKey()}}
	s.do(ctx, c)
	if id, _ := c.val.(string); validChannel(id) {
		return s.keys.NoticeChannel(id)
	}
	return ""
}

// Beat marks a node as alive for ttl, whole milliseconds, from now, and counts all live
// nodes. It asks the given shards for the last batch of this node, and whether they accept
// writes. All of this is one pipeline.
//
// The beat and the shards may be on different servers. If only some of them
// answered, the Beat has what is known. The error says why the beat itself failed
// (Nodes is 0 then), or else why the first of the shards did.
func (s *Store) Beat(ctx context.Context, node string, ttl time.Duration, shards []int, o BeatOptions) (Beat, error) {
	keys := s.keys
	beat := &call{script: scriptBeat, keys: []string{keys.NodesKey(), keys.LayoutsKey(), keys.ChannelKey()},
		args: []any{node, ttl.Milliseconds(), LedgerTTL.Milliseconds(), keys.Layout(), o.Offer}}
	calls := []*call{beat}
	with := slices.Index(shards, 0) // index of the shard that the call of the beat itself asks
	if with >= 0 {
		beat.keys = append(beat.keys, keys.SeqKey(0, node))
	}
	for i, shard := range shards {
		if i != with {
			calls = append(calls, &call{
				script: scriptSeq,
				keys:   []string{keys.SeqKey(shard, node)},
				args:   []any{LedgerTTL.Milliseconds()},
			})
		}
	}
	asks, echo := calls, &call{}
	if o.EchoChannel != "" {
		echo = s.publishes(Message{o.EchoChannel, []byte(o.Echo), o.EchoVia})
		calls = append(calls, echo)
	}
	if o.About != nil {
		text, _ := json.Marshal(o.About) // strings and finite numbers: it cannot fail
		calls = append(calls, &call{args: []any{"set", keys.AboutKey(node), text, "px", ttl.Milliseconds()}})
	}
	s.pipeline(ctx, calls)
	b, err := decodeBeat(asks, len(shards), with, keys)
	b.EchoErr = Wrap(echo.err)
	if b.Now > 0 {
		s.follow(b.Now)
	}
	return b, err
}

// decodeBeat reads the replies to a beat that asks the given number of shards. The first
// reply is also that for the shard with the index with; -1: for none.
func decodeBeat(calls []*call, shards, with int, keys Keyspace) (Beat, error) {
	b := Beat{Seqs: make([]int64, shards), Times: make([]time.Duration, shards), Errs: make([]error, shards)}
	own := calls[0].reply()
	ownSeq, ownNow, first := b.decode(own, keys)
	calls = calls[1:]
	for i := range b.Seqs {
		seq, now, err := ownSeq, ownNow, own.err
		if i != with {
			r := calls[0].reply()
			calls = calls[1:]
			seq, now, err = r.number(maxExact), r.now(), r.end()
		}
		if err != nil {
			seq, now = -1, 0
			first = cmp.Or(first, err)
		}
		b.Seqs[i], b.Times[i], b.Errs[i] = seq, now, err
	}
	return b, first
}

// decode reads the reply to the beat itself, with the number of the node's last batch in the first
// shard, and the time of its server.
func (b *Beat) decode(r *reader, keys Keyspace) (seq int64, now time.Duration, err error) {
	word := r.text()
	if word == "e" { // only the set of nodes cannot be read
		err = Wrap(&limit.KeyError{Key: keys.NodesKey(), Reason: bounded(r.text())})
		word = "0"
	}
	r.line = word
	nodes := r.digits(maxExact)
	r.over()
	now, seq = r.now(), r.number(maxExact)
	channel := r.text()
	if channel != "" && !validChannel(channel) {
		r.fail("%.80q is not the id of a channel", channel)
	}
	var others []string
	for err == nil && r.err == nil && r.n < len(r.items) {
		if text := bounded(r.text()); text != keys.Layout() {
			others = append(others, text)
		}
	}
	if r.end() != nil {
		return 0, 0, r.err
	}
	b.Channel = channel
	if err == nil {
		b.Nodes, b.Now, b.Others = int(nodes), now, others
	}
	return seq, now, err
}

// keepLedgers is how long a node's ledgers are kept after it has left, in ms, so that
// a late copy of one of its batches is still recognised.
const keepLedgers = 60_000

// Leave removes a node from the live nodes, with what it has said about itself, and lets its
// ledgers in the given shards expire a minute later.
func (s *Store) Leave(ctx context.Context, node string, shards []int) error {
	calls := []*call{{args: []any{"zrem", s.keys.NodesKey(), node}}, {args: []any{"pexpire", s.keys.AboutKey(node), 1}}}
	for _, shard := range shards {
		calls = append(calls, &call{args: []any{"pexpire", s.keys.SeqKey(shard, node), keepLedgers}})
	}
	s.pipeline(ctx, calls)
	for i, c := range calls {
		if c.err != nil && i != 1 { // that it has said who it is does not matter
			return Wrap(c.err) // the errors of the others are most likely the same
		}
	}
	return nil
}
