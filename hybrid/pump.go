package hybrid

import (
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/remote"
)

// due returns when s has something to send (0: nothing, or not in this
// state), and whether anything is waiting at all.
func (c *core) due(s *shard) (at int64, waiting bool) {
	waiting = s.flight != nil || len(s.normal)+len(s.urgent)+len(s.backlog) > 0
	if c.state.Mode == Degraded || !c.offset.known || !waiting {
		return 0, waiting
	}
	if s.flight != nil {
		return max(s.retry, c.paced(), 1), true
	}
	if c.state.Mode == Resyncing {
		if len(s.backlog) == 0 {
			return 0, true
		}
		return max(c.paced(), 1), true
	}
	if at = s.normalAt; at == 0 || s.urgentAt != 0 && s.urgentAt < at {
		at = s.urgentAt
	}
	return at, true
}

// paced returns when the next pipeline may start while resyncing.
func (c *core) paced() int64 {
	if c.state.Mode == Resyncing {
		return c.paceAt
	}
	return 0
}

// pump starts pipelines for the shards that are due, as long as slots last.
func (c *core) pump() {
	for c.free() {
		width := c.cfg.shardsPerPipe
		if c.state.Mode == Resyncing {
			width = c.cfg.resyncPipe
		}
		ids := c.pick(width)
		if len(ids) == 0 {
			return
		}
		c.send(ids)
	}
}

// free reports whether a pipeline may be started: one at a time while
// resyncing, a few otherwise.
func (c *core) free() bool {
	return c.slots > 0 && (c.state.Mode != Resyncing || len(c.pipes) == 0)
}

// pick prepares the flights of up to width shards that are due.
func (c *core) pick(width int) (ids []int) {
	n := len(c.shards)
	for range n {
		i := c.turn % n
		s := &c.shards[i]
		if at, _ := c.due(s); at != 0 && c.now >= at && s.pipe == 0 {
			if s.flight == nil {
				c.board(s)
			}
			if s.flight != nil {
				ids = append(ids, i)
			}
		}
		c.turn = (i + 1) % n
		if len(ids) == width {
			break
		}
	}
	return ids
}

// board makes the next flight of s from its queues. It stays nil if the
// counters there turn out to have nothing to tell.
func (c *core) board(s *shard) {
	var f flight
	take := func(queue *[]*local.Counter, taken *int64, urgent bool) {
		k := 0
		for k < len(*queue) && len(f.items) < c.cfg.maxBatch {
			ctr := (*queue)[k]
			k++
			if rep, ok := ctr.Collect(c.local, urgent); ok {
				f.items = append(f.items, item{c: ctr, rule: rep.Rule, units: rep.Units})
			}
		}
		*taken += int64(k)
		*queue = shorten(*queue, k)
	}
	take(&s.backlog, &s.takenNormal, false)
	if c.state.Mode != Resyncing {
		if s.urgentAt != 0 && c.now >= s.urgentAt {
			take(&s.urgent, &s.takenUrgent, true)
		}
		if s.normalAt != 0 && c.now >= s.normalAt {
			take(&s.normal, &s.takenNormal, false)
		}
	}
	if len(s.urgent) == 0 {
		s.urgentAt = 0
	}
	if len(s.normal) == 0 {
		s.normalAt = 0
	}
	if len(f.items) > 0 {
		s.seq++
		s.flight = &f
		s.retry = 0
	}
}

// shorten drops the first k counters, and with the last of them the memory.
func shorten(q []*local.Counter, k int) []*local.Counter {
	if k == len(q) {
		return nil
	}
	return q[k:]
}

// send starts one pipeline with the flights of the given shards.
func (c *core) send(ids []int) {
	p := &pipe{shards: ids, sent: c.local}
	id := c.newID()
	batches := make([]*remote.Batch, len(ids))
	for i, sh := range ids {
		c.shards[sh].pipe = id
		batches[i] = c.batch(sh)
	}
	c.pipes[id] = p
	c.slots--
	c.emit(efSend{id: id, batches: batches})
}

// batch states the flight of a shard, anew each time it is sent: the units
// are the same, but what is relative to now is not.
func (c *core) batch(id int) *remote.Batch {
	s := &c.shards[id]
	f := s.flight
	if f.tries++; f.tries > 1 {
		c.stats.resent.Add(1)
	}
	c.stats.batches.Add(1)
	c.stats.keysSynced.Add(uint64(len(f.items)))
	b := &remote.Batch{Shard: id, Node: c.node, Seq: s.seq, Prev: s.acked, Accept: s.accept, Ops: make([]remote.Op, len(f.items))}
	for i := range f.items {
		it := &f.items[i]
		ctr, rep := it.c.Resend(c.local, s.accept)
		it.c, it.rule, it.raised = ctr, rep.Rule, rep.Raise
		b.Ops[i] = c.op(ctr, rep, it.units)
	}
	return b
}

func (c *core) op(ctr *local.Counter, rep local.Report, units int64) remote.Op {
	op := remote.Op{
		Key: c.keys.CounterKey(rep.Rule, ctr.Key()), Rule: rep.Rule, Units: units,
		Ahead: rep.Ahead, Buckets: toRemote(rep.Buckets), Raise: rep.Raise,
	}
	if rep.Raise {
		op.Known = remote.State{Gen: rep.Gen, Level: rep.KnownLevel, Buckets: toRemote(rep.KnownBuckets)}
	}
	return op
}

func toRemote(in []local.Bucket) []remote.Bucket {
	out := make([]remote.Bucket, len(in))
	for i, b := range in {
		out[i] = remote.Bucket(b)
	}
	return out
}

func toLocal(in []remote.Bucket) []local.Bucket {
	out := make([]local.Bucket, len(in))
	for i, b := range in {
		out[i] = local.Bucket(b)
	}
	return out
}
