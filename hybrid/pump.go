package hybrid

import (
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/remote"
)

// lane is a kind of pipeline. Shards of different lanes never share one.
type lane uint8

const (
	express lane = iota
	// doubtful: the latest exchange failed. On a cluster a server that hangs
	// would hold up the shards of the others in the same pipeline.
	doubtful
	// gentle: shards that return after an outage are told what they have
	// missed a few at a time.
	gentle
)

func (s *shard) lane() lane {
	switch {
	case s.health == returning:
		return gentle
	case s.rounds.fails > 0, s.suspect:
		return doubtful
	}
	return express
}

// due returns when s has something to send (0: nothing, or not in this
// state), and whether anything is waiting at all.
func (c *core) due(s *shard) (at int64, waiting bool) {
	waiting = s.waits()
	if s.health == down || !s.offset.known || !waiting {
		return 0, waiting
	}
	if s.health == returning {
		if !s.unsettled() && len(s.backlog) == 0 {
			return 0, true
		}
		return max(s.retry, c.paceAt, 1), true
	}
	if s.unsettled() {
		return max(s.retry, 1), true
	}
	if at = s.normalAt; at == 0 || s.urgentAt != 0 && s.urgentAt < at {
		at = s.urgentAt
	}
	return at, true
}

// pump starts pipelines for the shards that are due, as long as slots last.
func (c *core) pump() {
	for _, l := range [...]lane{express, doubtful, gentle} {
		for c.free(l) {
			ids := c.pick(l)
			if len(ids) == 0 {
				break
			}
			c.send(ids, l)
		}
	}
}

// free reports whether a pipeline may be started: of returning shards one at
// a time, of others a few.
func (c *core) free(l lane) bool {
	return c.slots > 0 && (l != gentle || c.paced == 0)
}

// pick prepares the flights of the shards of a lane that are due, as many as
// one pipeline may carry.
func (c *core) pick(l lane) (ids []int) {
	n, width, left := len(c.shards), c.cfg.shardsPerPipe, c.budget.ns
	switch {
	case l == gentle:
		width = c.cfg.resyncPipe
	case l == doubtful && !c.cfg.oneServer:
		width = 1
	}
	for range n {
		i := c.turn % n
		s := &c.shards[i]
		if at, _ := c.due(s); at != 0 && c.now >= at && s.pipe == 0 && s.lane() == l {
			if s.flight == nil {
				c.board(s, left)
			}
			if s.flight != nil {
				ids = append(ids, i)
				left -= s.flight.cost
			}
		}
		c.turn = (i + 1) % n
		if len(ids) == width || left <= 0 {
			break
		}
	}
	return ids
}

// waits reports whether s has something to send, or has sent something.
func (s *shard) waits() bool {
	return s.unsettled() || len(s.normal)+len(s.urgent)+len(s.backlog) > 0
}

// urgentShare is the part of a flight that keys may fill which are not urgent, if others in
// it are: one in so many. In a flood of new keys a hot one goes less above its limit.
const urgentShare = 4

// unsettled reports whether something was sent that Redis has not answered yet.
func (s *shard) unsettled() bool { return s.flight != nil || len(s.rest) > 0 }

// board makes the next flight of s from its queues, until it costs what is left of
// the budget. It stays nil if the counters there turn out to have nothing to tell.
func (c *core) board(s *shard, left int64) {
	var f flight
	late, most := int64(0), c.cfg.maxBatch
	for len(s.rest) > 0 && len(f.items) < c.cfg.maxBatch && f.cost < left {
		f.add(s.rest[0])
		f.unsure, f.part = f.unsure || s.rest[0].booked, true
		s.rest = s.rest[1:]
	}
	take := func(queue *[]queued, taken *int64, urgent bool) {
		k := 0
		for k < len(*queue) && len(f.items) < most && f.cost < left {
			q := (*queue)[k]
			k++
			if rep, ok := q.c.Collect(c.local, urgent); ok {
				f.add(item{c: q.c, rule: rep.Rule, units: rep.Units, back: handsBack(rep)})
				late = max(late, c.now-q.at)
			}
		}
		*taken += int64(k)
		*queue = shorten(*queue, k)
	}
	if !f.part {
		take(&s.backlog, &s.takenNormal, false)
	}
	if s.health != returning && !f.part {
		if s.urgentAt != 0 && c.now >= s.urgentAt {
			take(&s.urgent, &s.takenUrgent, true)
			if len(f.items) > 0 {
				most /= urgentShare // what is urgent does not wait for Redis to book many others
			}
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
		f.nonce = c.ids.nonce()
		s.flight = &f
		s.retry = 0
		if !f.part { // what waits in parts is not in a queue
			c.stats.behind.Store(late)
		}
	}
}

func (f *flight) add(it item) {
	f.items = append(f.items, it)
	f.cost += cost(it.rule)
}

// shorten drops the first k counters, and with the last of them the memory.
func shorten(q []queued, k int) []queued {
	if k == len(q) {
		return nil
	}
	return q[k:]
}

// send starts one pipeline with the flights of the given shards.
func (c *core) send(ids []int, l lane) {
	p := &pipe{shards: ids, sent: c.local, at: c.now}
	id := c.newID()
	if l == gentle {
		c.paced = id
	}
	batches := make([]*remote.Batch, len(ids))
	for i, sh := range ids {
		c.shards[sh].pipe = id
		if batches[i] = c.batch(sh); !c.shards[sh].asks {
			p.cost += c.shards[sh].flight.cost
		}
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
	if f.unsure && s.acked == 0 {
		c.giveUpRefunds(s)
	}
	c.stats.batches.Add(1)
	if s.mustAsk() {
		s.ask()
	}
	if s.asks {
		return &remote.Batch{Shard: id, Node: s.node, Seq: s.seq, Prev: s.acked, Nonce: f.nonce}
	}
	c.stats.keysSynced.Add(uint64(len(f.items)))
	b := &remote.Batch{Shard: id, Node: s.node, Seq: s.seq, Prev: s.acked, Nonce: f.nonce, Accept: s.accept, Ops: make([]remote.Op, len(f.items))}
	for i := range f.items {
		it := &f.items[i]
		ctr, rep := it.c.Resend(c.local, s.accept)
		it.c, it.rule, it.raised = ctr, rep.Rule, rep.Raise
		if it.booked {
			b.Ops[i] = c.op(ctr, justRead(rep), 0)
			continue
		}
		b.Ops[i] = c.op(ctr, rep, it.units)
	}
	return b
}

func (c *core) op(ctr *local.Counter, rep local.Report, units int64) remote.Op {
	op := remote.Op{
		Key: c.keys.CounterKey(rep.Rule, ctr.Key()), Rule: rep.Rule, Units: units,
		Ahead: rep.Ahead, Buckets: toRemote(rep.Buckets), Raise: rep.Raise,
		Back: rep.Back, BackTop: rep.BackTop, BackBuckets: toRemote(rep.BackBuckets), BackGen: rep.BackGen,
		Debt: min(rep.Debt, units), Ceiling: rep.Ceiling,
	}
	if rep.Raise {
		op.Known = remote.State{Gen: rep.Gen, Born: rep.Born, Level: rep.KnownLevel, Buckets: toRemote(rep.KnownBuckets)}
	}
	return op
}

// handsBack reports whether something is handed back.
func handsBack(rep local.Report) bool { return rep.Back != limit.Span{} || len(rep.BackBuckets) > 0 }

func toRemote(in []local.Bucket) []remote.Bucket {
	if len(in) == 0 {
		return nil
	}
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
