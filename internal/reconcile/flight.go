package reconcile

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// flight is a batch under way: the counters and what they report.
type flight struct {
	items       []item
	cost        int64  // estimate of how long it occupies Redis, ns
	tries       int    // how often it was sent
	nonce       uint64 // distinguishes it from a flight with the same number of a copy of this process
	maybeBooked bool   // Redis may have applied it: an attempt got no answer
	late        int    // how many of the attempts had no answer in time
}

// item is what one counter reports in a flight.
type item struct {
	c      *counter.Counter
	rule   *limit.Rule
	units  int64
	back   bool // it hands units back
	raised bool // it restores what Redis has lost
}

func (f *flight) add(it item) {
	f.items = append(f.items, it)
	f.cost += cost(it.rule)
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
	if f.tries++; f.tries > 1 {
		c.stats.Resent.Add(1)
	}
	if f.maybeBooked && s.acked == 0 {
		c.giveUpRefunds(s)
	}
	c.stats.Batches.Add(1)
	c.stats.KeysSynced.Add(uint64(len(f.items)))
	b := &redisstore.Batch{Shard: id, Node: s.node, Seq: s.seq, Prev: s.acked, Nonce: f.nonce, Accept: s.accept, MaxLag: time.Duration(c.cfg.maxLag), Ops: make([]redisstore.Op, len(f.items))}
	for i := range f.items {
		it := &f.items[i]
		rep := it.c.Resend(c.local, s.accept)
		it.rule, it.raised = rep.Rule, rep.Raise
		b.Ops[i] = c.op(it.c, rep, it.units)
	}
	return b
}

// op returns the operation for the report of one counter.
func (c *Machine) op(ctr *counter.Counter, rep counter.Report, units int64) redisstore.Op {
	op := redisstore.Op{
		Key: c.nameOf(ctr, rep.Rule), Rule: rep.Rule, Units: units,
		Ahead: rep.Ahead, Buckets: toRemote(rep.Buckets), Raise: rep.Raise,
		Back: rep.Back, BackTop: rep.BackTop, BackBuckets: toRemote(rep.BackBuckets), BackGen: rep.BackGen,
		Debt: min(rep.Debt, units), Ceiling: rep.Ceiling,
	}
	if rep.Raise {
		op.Known = redisstore.State{Gen: rep.Gen, Born: rep.Born, Level: rep.KnownLevel, Buckets: toRemote(rep.KnownBuckets)}
	}
	return op
}

// handsBack reports whether a report hands units back.
func handsBack(rep counter.Report) bool { return rep.Back != arith.Span{} || len(rep.BackBuckets) > 0 }

// toRemote converts the buckets of a counter to those of a batch.
func toRemote(in []counter.Bucket) []redisstore.Bucket {
	if len(in) == 0 {
		return nil
	}
	out := make([]redisstore.Bucket, len(in))
	for i, b := range in {
		out[i] = redisstore.Bucket(b)
	}
	return out
}

// toLocal converts the buckets of a reply to those of a counter.
func toLocal(in []redisstore.Bucket) []counter.Bucket {
	out := make([]counter.Bucket, len(in))
	for i, b := range in {
		out[i] = counter.Bucket(b)
	}
	return out
}

// nameOf returns the name of a counter in Redis.
func (c *Machine) nameOf(ctr *counter.Counter, rule *limit.Rule) string {
	return c.keys.CounterKeyIn(ctr.Shard(), rule, ctr.Key(), ctr.IsHashed())
}

// After a loss of data a unit may be counted twice: that errs on the safe side. A refund
// must not be applied twice, because more than the limit would be admitted.
//
// As long as Redis has the record of the latest flight (its number and its nonce), the
// record prevents both. If the record is lost, it is unknown whether a flight without an
// answer was applied before; so its refunds are given up. The first flight under a name has
// no record to compare with, so its refunds are given up after the first attempt without an
// answer.

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

// giveUpRefunds removes the refunds from the flight of s if Redis may have applied them
// already. Their units count again on this node, because Redis may not have applied them.
func (c *Machine) giveUpRefunds(s *shard) {
	if s.flight == nil || !s.flight.maybeBooked {
		return
	}
	for i := range s.flight.items {
		if it := &s.flight.items[i]; it.back {
			c.giveUpRefund(it)
		}
	}
}

func (c *Machine) giveUpRefund(it *item) {
	it.c.KeepSentBack(c.local)
	it.back = false
	c.stats.GivenUp.Add(1)
}

// Renewal converts what Redis has answered about a counter that was set. It is not known exactly when it
// was set. The time of the answer is the latest possible, and errs on the safe side.
func Renewal(sent, recv int64, done redisstore.Renewed) counter.Renewal {
	return counter.Renewal{
		Gen: done.State.Gen, Born: done.State.Born, Level: done.State.Level, Buckets: toLocal(done.State.Buckets),
		At: recv, Late: recv - sent, ServerNow: int64(done.Now),
	}
}
