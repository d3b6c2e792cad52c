package reconcile

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// flight is a batch under way: the counters and what they report.
type flight struct {
	items       []item
	reports     []report.Report // of the items, as last sent; nil: it was not sent yet
	cost        int64           // estimate of how long it occupies Redis, ns
	oldest      int64           // when the first of the items was queued, on the timer clock
	nonce       uint64          // distinguishes it from a flight with the same number of a copy of this process
	maybeBooked bool            // Redis may have applied it: an attempt got no answer
	late        int             // how many of the attempts had no answer in time
}

// item is one counter of a flight.
type item struct {
	c    *counter.Counter
	back bool // the report has refunds, which were not given up
}

// pipe is a pipeline under way: the flights of some shards of one server.
type pipe struct {
	load   *load
	shards []int
	sent   int64 // when it was sent, on the counter clock
	at     int64 // the same instant on the timer clock
	cost   int64 // sum of its flights, ns
	most   int64 // its deadline, ns
}

// batch returns the batch for the flight of a shard. It is made anew for each attempt: the units stay
// the same, but the ages in it are relative to now.
func (c *Machine) batch(id int) *redisstore.Batch {
	s := &c.shards[id]
	f := s.flight
	again := f.reports != nil
	if again {
		c.stats.Resent.Add(1)
	}
	if f.maybeBooked && s.acked == 0 {
		c.giveUpRefunds(s)
	}
	c.stats.Batches.Add(1)
	c.stats.KeysSynced.Add(uint64(len(f.items)))
	f.reports = make([]report.Report, len(f.items)) // the call of an earlier attempt may still use its own
	for i := range f.items {
		it, rep := &f.items[i], &f.reports[i]
		it.c.Report(c.local, s.accept, rep)
		rep.Key = c.nameOf(it.c, rep.Rule)
		it.back = it.back || !again && rep.Refunds()
	}
	return &redisstore.Batch{
		Shard: id, Node: s.node, Seq: s.seq, Prev: s.acked, Nonce: f.nonce, Accept: s.accept,
		MaxLag: time.Duration(c.cfg.MaxLag), Ops: f.reports,
	}
}

// nameOf returns the name of a counter in Redis.
func (c *Machine) nameOf(ctr *counter.Counter, rule *limit.Rule) string {
	return c.keys.CounterKeyIn(ctr.Shard(), rule, ctr.Stored())
}

// After a loss of data a unit may be counted twice: that errs on the safe side. A refund must not be applied
// twice, because more than the limit would be admitted.
//
// As long as Redis has the record of the latest flight (its number and its nonce), the record prevents
// both. If the record is lost, it is unknown whether a flight without an answer was applied before; so its
// refunds are given up. The first flight under a name has no record to compare with, so its refunds are
// given up after the first attempt without an answer.

// noteUnanswered notes that it is unknown whether Redis has applied the flight of s. With accept set,
// Redis applies a flight without comparing it with its record. A flight with refunds must be compared,
// because Redis may have applied it and lost the record after that.
func (s *shard) noteUnanswered() {
	if s.flight == nil {
		return
	}
	s.flight.maybeBooked = true
	if slices.ContainsFunc(s.flight.items, func(it item) bool { return it.back }) {
		s.accept = false
	}
}

// giveUpRefunds removes the refunds from the flight of s if Redis may have applied them already. Their units
// count again on this node, because Redis may not have applied them.
func (c *Machine) giveUpRefunds(s *shard) {
	if s.flight == nil || !s.flight.maybeBooked {
		return
	}
	for i := range s.flight.items {
		if it := &s.flight.items[i]; it.back {
			it.c.KeepSentBack(c.local)
			it.back = false
			c.stats.GivenUp.Add(1)
		}
	}
}

// Renewal converts what Redis has answered about a counter that was set. It is not known exactly when it
// was set. The time of the answer is the latest possible, and errs on the safe side.
func Renewal(sent, recv int64, done redisstore.Renewed) report.Answer {
	return report.Answer{State: done.State, At: recv, Late: recv - sent, ServerNow: int64(done.Now)}
}
