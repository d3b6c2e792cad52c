package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// books returns a report of n units that are booked now.
func (b *backend) books(key string, r *limit.Rule, n int64) report.Report {
	if arith.Of(r).Algorithm == arith.TokenBucket {
		return report.Report{Key: key, Rule: r, Units: n, Ahead: arith.Of(r).Cost(n)}
	}
	return report.Report{Key: key, Rule: r, Units: n, Buckets: []report.Bucket{{ID: b.now() / widthUS(r), Units: n}}}
}

// handsBack has a report hand back n units that were booked just now.
func (b *backend) handsBack(op report.Report, n int64) report.Report {
	if arith.Of(op.Rule).Algorithm == arith.TokenBucket {
		op.Back, op.BackTop = arith.Of(op.Rule).Cost(n), arith.Of(op.Rule).Full
	} else {
		op.BackBuckets = []report.Bucket{{ID: b.now() / widthUS(op.Rule), Units: n}}
	}
	return op
}

// What a batch hands back comes off once, however often it arrives, and what
// it books is not touched.
func TestBatchHandsBack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		for i, r := range callRules(t)[:3] {
			k, gen := s.Keyspace().CounterKey(r, "k"), int64(0)
			batch := func(seq int64, op report.Report) *Batch {
				return &Batch{Node: fmt.Sprint("n", i), Seq: seq, Prev: seq - 1, Ops: []report.Report{op}}
			}
			first, second, third := batch(1, b.books(k, r, 6)), batch(2, b.handsBack(b.books(k, r, 3), 4)), batch(3, b.handsBack(b.books(k, r, 1), 9))
			for i, c := range []struct {
				b    *Batch
				want int64
			}{{first, 6}, {second, 5}, {second, 5}, {third, 1}, {third, 1}} {
				o := exec(t, s, c.b)
				if heldBy(r, &o.States[0]) != c.want {
					t.Fatalf("%v, step %d: %+v, want %d used", r, i, o, c.want)
				}
				if now := o.States[0].Gen; i > 0 && now <= gen && o.Verdict == VerdictApplied {
					t.Errorf("%v, step %d: generation %d after %d", r, i, now, gen)
				} else {
					gen = now
				}
			}
		}
	})
}

// A node that was told of a generation takes an older one for a loss for as long
// as its horizon is. So long it must be remembered, also if the node has only
// asked, and one with a lower limit has written since.
func TestGenerationOutlivesWhoeverWasToldOfIt(t *testing.T) {
	b := onMini(t)
	s := b.store()
	l := &Limiter{s}
	seq := int64(0)
	for _, rule := range []*limit.Rule{funnel(t, 60, 1, time.Minute), sliding(t, 100, time.Hour, 10), fixed(t, 5, time.Hour)} {
		if err := l.Reset(ctx, "k", rule); err != nil {
			t.Fatal(err)
		}
		key := l.keys.CounterKey(rule, "k")
		b.advance(arith.Of(rule).Horizon())
		ask := func(r *limit.Rule) {
			seq++
			exec(t, s, &Batch{Node: "n1", Seq: seq, Prev: seq - 1, Ops: []report.Report{{Key: key, Rule: r}}})
		}
		ask(rule)
		if arith.Of(rule).Algorithm == arith.TokenBucket {
			lower := funnel(t, 1, 1, time.Minute)
			ask(lower)
			take(t, l, "k", lower, 1)
		}
		if ttl := b.rdb.PTTL(ctx, key).Val(); ttl < arith.Of(rule).Horizon()+time.Second {
			t.Errorf("%v: TTL %v after it was asked for, want %v", rule, ttl, arith.Of(rule).Horizon()+time.Second)
		}
	}
}

// Where there is nothing to take off no generation begins: it would clear what other nodes
// know of a key that Redis has lost.
func TestBatchHandsNothingBack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		for i, rule := range []*limit.Rule{funnel(t, 10, 1, 1000*time.Hour), fixed(t, 10, 1000*time.Hour), sliding(t, 10, 1000*time.Hour, 10)} {
			back := b.handsBack(report.Report{Key: s.Keyspace().CounterKey(rule, "k"), Rule: rule}, 5)
			if st := exec(t, s, &Batch{Node: fmt.Sprint("n", i), Seq: 1, Ops: []report.Report{back}}).States[0]; st.Gen != 0 {
				t.Errorf("%v: generation %d begins of a key that Redis does not know", rule, st.Gen)
			}
		}
	})
}

// What a node hands back of units that a reset has cleared is dropped, until the
// node has heard of the reset.
func TestBatchHandsBackAfterReset(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		l := &Limiter{s}
		for i, rule := range []*limit.Rule{funnel(t, 10, 1, 1000*time.Hour), fixed(t, 10, 1000*time.Hour), sliding(t, 10, 1000*time.Hour, 10)} {
			node, shard := fmt.Sprint("n", i), s.Keyspace().Shard("k")
			op := b.books(s.Keyspace().CounterKey(rule, "k"), rule, 5)
			back := b.handsBack(report.Report{Key: op.Key, Rule: rule}, 5)
			old := exec(t, s, &Batch{Shard: shard, Node: node, Seq: 1, Ops: []report.Report{op}}).States[0]
			if err := l.Reset(ctx, "k", rule); err != nil {
				t.Fatal(err)
			}
			take(t, l, "k", rule, 10)
			back.BackGen = old.Gen
			st := exec(t, s, &Batch{Shard: shard, Node: node, Seq: 2, Prev: 1, Ops: []report.Report{back}}).States[0]
			if left := remains(t, l, "k", rule); left != 0 {
				t.Errorf("%v: %d remain", rule, left)
			}
			back.BackGen = st.Gen
			exec(t, s, &Batch{Shard: shard, Node: node, Seq: 3, Prev: 2, Ops: []report.Report{back}})
			if left := remains(t, l, "k", rule); left != 5 {
				t.Errorf("%v: %d remain, want 5", rule, left)
			}
			// Redis loses everything. Another node restores what it knew since the
			// reset, but not that it was one.
			b.do("FLUSHALL")
			back.BackGen = old.Gen
			for _, op := range []report.Report{{Key: op.Key, Rule: rule, Restore: true, Known: st}, back} {
				exec(t, s, &Batch{Shard: shard, Node: fmt.Sprint("m", op.Restore), Seq: 1, Ops: []report.Report{op}})
			}
			if left := remains(t, l, "k", rule); left != 0 {
				t.Errorf("%v: %d remain of what was restored", rule, left)
			}
		}
	})
}

// A leaky bucket that is above its capacity gives units back, unless callers wait who have booked ahead:
// by a report or by a call. Redis says until when they wait, and forgets it after that and with a reset.
//
// Fault 107: a bucket above its limit, and a reservation.
func TestBatchTellsReservationsFromExcess(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s, rule := b.store(), funnel(t, 10, 1, time.Minute)
		r, seq := arith.Of(rule), int64(0)
		op := func(key string, op report.Report) report.State {
			seq++
			op.Key, op.Rule = s.Keyspace().CounterKey(rule, key), rule
			return exec(t, s, &Batch{Shard: s.Keyspace().Shard(key), Node: "n", Seq: seq, Prev: seq - 1, Ops: []report.Report{op}}).States[0]
		}
		book := func(key string, units int64, waits time.Duration) report.State {
			return op(key, report.Report{Units: units, Ahead: r.Cost(units), Waits: waits})
		}
		back := func(key string) report.State {
			return op(key, report.Report{Back: r.Cost(3), BackTop: r.Full, BackGen: 1 << 52})
		}
		book("excess", 12, 0)
		if st := back("excess"); r.WholeUp(st.Level) != 9 || st.Waiting != 0 {
			t.Errorf("%d units of 12 count after 3 were handed back: %+v", r.WholeUp(st.Level), st)
		}
		if st := book("booked", 12, time.Minute); st.Waiting < b.now()+59_000_000 || st.Waiting > b.now()+61_000_000 {
			t.Errorf("callers wait until %d, now is %d", st.Waiting, b.now())
		}
		if st := book("booked", 1, 0); st.Waiting == 0 || r.WholeUp(back("booked").Level) != 13 {
			t.Errorf("units are handed back before a reservation: %+v", st)
		}
		if n, _, err := s.Refund(ctx, "booked", rule, 3, nil); n != 0 || err != nil {
			t.Errorf("%d units handed back by a call, %v", n, err)
		}
		if _, err := s.Renew(ctx, "booked", rule, 12); err != nil {
			t.Fatal(err)
		}
		if st := back("booked"); st.Waiting != 0 || r.WholeUp(st.Level) != 9 {
			t.Errorf("after a reset: %+v", st)
		}
		ask := Ask{Counter: s.Keyspace().CounterKey(rule, "call"), Rule: rule, Units: 10, Own: 10, Ahead: time.Hour}
		for range 2 { // the second waits until the first ten have leaked
			if taken, _, err := s.Take(ctx, Ahead, ask); err != nil || !taken.Booked {
				t.Fatalf("%+v, %v", taken, err)
			}
		}
		if n, _, err := s.Refund(ctx, "call", rule, 3, nil); n != 0 || err != nil {
			t.Errorf("%d units handed back before a caller that waits, %v", n, err)
		}
		ask.Units, ask.Own = 0, 0
		if taken, _, err := s.Take(ctx, LookState, ask); err != nil || taken.Answers[0].State.Waiting < b.now()+599_000_000 {
			t.Errorf("%+v, %v", taken, err)
		}
		if b.mini == nil {
			return
		}
		b.advance(11 * time.Minute) // nobody waits any more
		book("call", 5, 0)
		if st := back("call"); st.Waiting != 0 || r.WholeUp(st.Level) != 11 {
			t.Errorf("%d units count, want 11: %+v", r.WholeUp(st.Level), st)
		}
	})
}
