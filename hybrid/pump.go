package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// pump starts pipelines for the shards that are due, as long as their servers have slots. A
// pipeline is for one server, so that a server that hangs delays no other.
func (c *core) pump() {
	first, n := c.nextServer, len(c.servers)
	for _, missed := range [...]bool{true, false} { // first those after an outage: the others could take all slots for ever
		for k := range n {
			v := c.servers[(first+k)%n]
			for v.load.free(missed) {
				ids := c.pick(v, missed)
				if len(ids) == 0 {
					break
				}
				c.send(v, ids, missed)
				c.nextServer = (first + k + 1) % n
			}
		}
	}
}

// pick makes the flights of the shards of v that are due, and returns as many shards as one
// pipeline may carry: of those that have missed something in an outage, or of the others.
func (c *core) pick(v *server, missed bool) (ids []int) {
	n, width, left := len(v.shards), c.cfg.shardsPerPipe, v.load.budget.ns
	if missed {
		width = c.cfg.resyncPipe
	}
	for range n {
		i := v.shards[v.nextShard%n]
		s := &c.shards[i]
		if at, _ := s.due(); at != 0 && c.now >= at && s.pipe == 0 && s.missed == missed {
			if s.flight == nil {
				c.board(s, left, c.mostKeys(v))
			}
			if s.flight != nil {
				ids = append(ids, i)
				left -= s.flight.cost
			}
		}
		v.nextShard = (v.nextShard + 1) % n
		if len(ids) == width || left <= 0 {
			break
		}
	}
	return ids
}

// urgentShare bounds a flight with urgent keys: if it has any, it is filled up with other
// keys to one part in urgentShare at most. Urgent reports then do not wait for
// Redis to book a flood of new keys.
const urgentShare = 4

// board makes the next flight of s, until it costs what is left of the budget or has the most keys.
// The parts of a flight that was split travel first, and by themselves. There is no flight if no
// counter in the queues has anything to report.
func (c *core) board(s *shard, left int64, most int) {
	var f flight
	for len(s.rest) > 0 && len(f.items) < c.cfg.maxBatch && f.cost < left {
		f.add(s.rest[0])
		f.maybeBooked, f.part = f.maybeBooked || s.rest[0].booked, true
		s.rest = s.rest[1:]
	}
	var late int64
	if !f.part {
		late = c.boardQueues(s, &f, left, most)
	}
	if len(s.urgent) == 0 {
		s.urgentAt, s.pressing = 0, nil
	}
	if len(s.normal) == 0 {
		s.normalAt = 0
	}
	if len(f.items) == 0 {
		return
	}
	s.boardedAt = c.now
	s.seq++
	f.nonce = c.ids.nonce()
	s.flight = &f
	s.retry = 0
	if !f.part { // parts have not waited in a queue
		c.stats.behind.Store(late)
	}
}

// boardQueues fills f from the queues of s that are due, and returns the longest time that
// one of its reports has waited.
func (c *core) boardQueues(s *shard, f *flight, left int64, most int) (late int64) {
	take := func(queue *[]queued, taken *int64, from counter.Queue) {
		k := 0
		for k < len(*queue) && len(f.items) < most && f.cost < left {
			q := (*queue)[k]
			k++
			if rep, ok := q.c.Collect(c.local, from); ok {
				f.add(item{c: q.c, rule: rep.Rule, units: rep.Units, back: handsBack(rep)})
				late = max(late, c.now-q.at)
			}
		}
		*taken += int64(k)
		*queue = shorten(*queue, k)
	}
	take(&s.backlog, &s.takenNormal, counter.Normal)
	if s.missed {
		return late
	}
	due := s.urgentAt != 0 && c.now >= s.urgentAt
	if due || s.normalAt != 0 && c.now >= s.normalAt { // those that wait for company travel with any other
		take(&s.pressing, new(int64), counter.Pressing)
		take(&s.urgent, &s.takenUrgent, counter.Urgent)
		if due && len(f.items) > 0 {
			most /= urgentShare
		}
	}
	if s.normalAt != 0 && c.now >= s.normalAt {
		take(&s.normal, &s.takenNormal, counter.Normal)
	}
	return late
}

// send starts one pipeline to a server, with the flights of some of its shards.
func (c *core) send(v *server, ids []int, missed bool) {
	p := &pipe{load: v.load, shards: ids, sent: c.local, at: c.now}
	id := c.newID()
	if missed {
		v.load.paced = id
	}
	batches := make([]*redisstore.Batch, len(ids))
	for i, sh := range ids {
		c.shards[sh].pipe = id
		if batches[i] = c.batch(sh); !c.shards[sh].asksFate {
			p.cost += c.shards[sh].flight.cost
		}
	}
	c.pipes[id] = p
	v.load.slots--
	c.emit(efSend{id: id, timeout: c.deadline(v, 0), batches: batches})
}
