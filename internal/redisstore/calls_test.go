package redisstore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

func callRules(t *testing.T) []*limit.Rule {
	log, err := limit.SlidingLog("l", 10, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return []*limit.Rule{funnel(t, 10, 10, time.Hour), sliding(t, 10, time.Hour, 10), fixed(t, 10, time.Hour), log}
}

func forCallRules(t *testing.T, test func(t *testing.T, b *backend, l *Limiter, r *limit.Rule)) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, err := New(b.rdb, Options{CommandTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range callRules(t) {
			t.Run(r.Algorithm().String(), func(t *testing.T) { test(t, b, l, r) })
		}
		b.everyKeyExpires()
	})
}

func remains(t *testing.T, l *Limiter, key string, r *limit.Rule) int64 {
	t.Helper()
	res, err := l.Take(ctx, key, r, 0)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

func TestTakeAtMost(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		for _, step := range []struct{ n, granted, remaining int64 }{{0, 0, 10}, {7, 7, 3}, {5, 3, 0}, {1, 0, 0}, {0, 0, 0}, {math.MaxInt64, 0, 0}} {
			granted, res, err := l.TakeAtMost(ctx, "k", r, step.n)
			if err != nil || granted != step.granted || res.Remaining != step.remaining || res.Limit != 10 {
				t.Fatalf("at most %d: %d granted, %+v, %v, want %d and %d remaining", step.n, granted, res, err, step.granted, step.remaining)
			}
			if ok := step.granted > 0 || step.n == 0; res.Allowed != ok || (res.RetryAfter > 0) == ok {
				t.Fatalf("at most %d: %+v", step.n, res)
			}
		}
		if granted, res, err := l.TakeAtMost(ctx, "all", r, math.MaxInt64); err != nil || granted != 10 || !res.Allowed {
			t.Errorf("all there is: %d, %+v, %v", granted, res, err)
		}
		if granted, res, err := l.TakeAtMost(ctx, "k", r, -1); !errors.Is(err, limit.ErrInvalidN) || granted != 0 || res.Allowed {
			t.Errorf("-1: %d, %+v, %v", granted, res, err)
		}
	})
	onBoth(t, func(t *testing.T, b *backend) {
		l, err := New(b.rdb, Options{CommandTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if granted, res, err := l.TakeAtMost(ctx, "k", funnel(t, 0, 1, time.Second), 5); err != nil || granted != 0 || res.Allowed || res.RetryAfter != limit.Never {
			t.Errorf("of a limit of 0: %d, %+v, %v", granted, res, err)
		}
		if granted, _, err := l.TakeAtMost(ctx, "k", nil, 5); !errors.Is(err, limit.ErrNilRule) || granted != 0 {
			t.Errorf("no rule: %d, %v", granted, err)
		}
	})
}

// What is left is granted to the unit, for numbers of any size.
func TestTakeAtMostIsExact(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, err := New(b.rdb, Options{CommandTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(3, 3))
		for i := range 60 {
			size := int64(1) << rng.IntN(51)
			rules := []*limit.Rule{funnel(t, size, size, 1000*time.Hour), sliding(t, size, 1000*time.Hour, 1+rng.IntN(20)), fixed(t, size, 1000*time.Hour)}
			r := rules[i%3]
			key := string(rune('a' + i))
			used := rng.Int64N(size + 1)
			if res, err := l.Take(ctx, key, r, used); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			granted, res, err := l.TakeAtMost(ctx, key, r, math.MaxInt64)
			// Redis' clock goes on: a funnel leaks meanwhile.
			if err != nil || granted < size-used || r.Algorithm() != limit.AlgorithmFunnel && granted != size-used {
				t.Errorf("%v: %d granted of %d, %+v, %v", r, granted, size-used, res, err)
			}
		}
	})
}

func TestRefund(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, r *limit.Rule) {
		if back, err := l.Refund(ctx, "k", r, 5); back != 0 || err != nil {
			t.Errorf("%d handed back of a key that nobody has used, %v", back, err)
		}
		l.Take(ctx, "k", r, 7)
		for _, step := range []struct{ n, back, remaining int64 }{{0, 0, 3}, {3, 3, 6}, {math.MaxInt64, 4, 10}, {1, 0, 10}} {
			back, err := l.Refund(ctx, "k", r, step.n)
			if got := remains(t, l, "k", r); err != nil || back != step.back || got != step.remaining {
				t.Fatalf("refund of %d: %d handed back, %d remain, %v, want %d and %d", step.n, back, got, err, step.back, step.remaining)
			}
		}
		if back, err := l.Refund(ctx, "k", r, -1); !errors.Is(err, limit.ErrInvalidN) || back != 0 {
			t.Errorf("-1: %d, %v", back, err)
		}
		if back, err := l.Refund(ctx, "k", nil, 1); !errors.Is(err, limit.ErrNilRule) || back != 0 {
			t.Errorf("no rule: %d, %v", back, err)
		}
	})
}

// What is handed back of a bucket that counts in part is what counts less.
func TestRefundOfAFadedBucket(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), sliding(t, 10, 10*time.Second, 1)
	b.advance(10*time.Second - time.Duration(b.now()%10_000_000)*time.Microsecond)
	b.advance(500 * time.Millisecond)
	for range 10 { // one a second: nine of them are a window old after 19 s
		take(t, l, "k", rule, 1)
		b.advance(time.Second)
	}
	b.advance(8500 * time.Millisecond)
	for _, step := range []struct{ n, back, remaining int64 }{{0, 0, 9}, {4, 0, 9}, {10, 1, 10}, {1, 0, 10}} {
		back, err := l.Refund(ctx, "k", rule, step.n)
		if got := remains(t, l, "k", rule); err != nil || back != step.back || got != step.remaining {
			t.Errorf("refund of %d: %d handed back, %d remain, %v, want %d and %d", step.n, back, got, err, step.back, step.remaining)
		}
	}
}

func TestSet(t *testing.T) {
	forCallRules(t, func(t *testing.T, b *backend, l *Limiter, r *limit.Rule) {
		l.Take(ctx, "k", r, 4)
		for _, step := range []struct{ used, remaining int64 }{{9, 1}, {2, 8}, {10, 0}, {25, 0}, {math.MaxInt64, 0}, {0, 10}, {3, 7}} {
			if err := l.Set(ctx, "k", r, step.used); err != nil {
				t.Fatal(err)
			}
			if got := remains(t, l, "k", r); got != step.remaining {
				t.Fatalf("set to %d: %d remain, want %d", step.used, got, step.remaining)
			}
		}
		if err := l.Set(ctx, "k", r, -1); !errors.Is(err, limit.ErrInvalidN) || remains(t, l, "k", r) != 7 {
			t.Errorf("-1: %v", err)
		}
		var key *limit.KeyError
		b.rdb.Del(ctx, l.srv.keys.CounterKey(r, "broken"))
		b.rdb.SAdd(ctx, l.srv.keys.CounterKey(r, "broken"), "x")
		b.rdb.Expire(ctx, l.srv.keys.CounterKey(r, "broken"), time.Hour)
		if err := l.Set(ctx, "broken", r, 1); !errors.As(err, &key) {
			t.Errorf("a broken key: %v", err)
		}
		if _, err := l.Refund(ctx, "broken", r, 1); !errors.As(err, &key) {
			t.Errorf("a refund of a broken key: %v", err)
		}
		if _, _, err := l.TakeAtMost(ctx, "broken", r, 1); !errors.As(err, &key) {
			t.Errorf("what is left of a broken key: %v", err)
		}
	})
}

// What a batch hands back comes off once, however often it arrives, and what
// it books is not touched.
func TestBatchHandsBack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		for _, r := range callRules(t)[:3] {
			k := s.Keyspace().CounterKey(r, "k")
			shard := s.Keyspace().Shard("k")
			node := "n-" + r.Algorithm().String()
			op := func(units, back int64) Op {
				op := Op{Key: k, Rule: r, Units: units}
				if r.Algorithm() == limit.AlgorithmFunnel {
					op.Back, op.BackTop, op.Ahead = arithOf(r).Cost(back), arithOf(r).Full, arithOf(r).Cost(units)
					return op
				}
				id := b.now() / widthUS(r)
				op.Buckets = []Bucket{{ID: id, Units: units}}
				if back > 0 {
					op.BackBuckets = []Bucket{{ID: id, Units: back}}
				}
				return op
			}
			used := func(o Outcome) int64 {
				st := o.Reply.States[0]
				sum := arithOf(r).Whole(st.Level)
				if arithOf(r).Cost(sum).Less(st.Level) {
					sum++
				}
				for _, b := range st.Buckets {
					sum += b.Units
				}
				return sum
			}
			first := &Batch{Shard: shard, Node: node, Seq: 1, Ops: []Op{op(6, 0)}}
			second := &Batch{Shard: shard, Node: node, Seq: 2, Prev: 1, Ops: []Op{op(3, 4)}}
			third := &Batch{Shard: shard, Node: node, Seq: 3, Prev: 2, Ops: []Op{op(1, 9)}}
			gen := int64(0)
			for i, c := range []struct {
				b    *Batch
				want int64
			}{{first, 6}, {second, 5}, {second, 5}, {third, 1}, {third, 1}} {
				o := execAll(s, []*Batch{c.b})[0]
				if o.Err != nil || used(o) != c.want {
					t.Fatalf("%v, step %d: %+v, want %d used", r, i, o, c.want)
				}
				if now := o.Reply.States[0].Gen; i > 0 && now <= gen && o.Reply.Fate == FateApplied {
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
	l := &Limiter{srv: s.srv}
	seq := int64(0)
	for _, rule := range []*limit.Rule{funnel(t, 60, 1, time.Minute), sliding(t, 100, time.Hour, 10), fixed(t, 5, time.Hour)} {
		if err := l.Reset(ctx, "k", rule); err != nil {
			t.Fatal(err)
		}
		key := l.srv.keys.CounterKey(rule, "k")
		b.advance(arithOf(rule).Horizon())
		ask := func(r *limit.Rule) {
			seq++
			exec(t, s, &Batch{Node: "n1", Seq: seq, Prev: seq - 1, Ops: []Op{{Key: key, Rule: r}}})
		}
		ask(rule)
		if rule.Algorithm() == limit.AlgorithmFunnel {
			lower := funnel(t, 1, 1, time.Minute)
			ask(lower)
			take(t, l, "k", lower, 1)
		}
		if ttl := b.rdb.PTTL(ctx, key).Val(); ttl < arithOf(rule).Horizon()+time.Second {
			t.Errorf("%v: TTL %v after it was asked for, want %v", rule, ttl, arithOf(rule).Horizon()+time.Second)
		}
	}
}

// Units of a log that are taken and handed back within one microsecond, or while
// Redis' clock stands still, are counted one by one.
func TestLogWithinOneMicrosecond(t *testing.T) {
	b := onMini(t) // whose clock stands still
	l := &Limiter{srv: b.store().srv}
	rule := limit.Must(limit.SlidingLog("log", 100, time.Hour))
	want := int64(0)
	for i, step := range []int64{12, -3, 5, -11, 20, -1, 30, -40, 60} {
		if want += step; step > 0 {
			if res, err := l.Take(ctx, "k", rule, step); err != nil || !res.Allowed {
				t.Fatalf("%d: %+v, %v", i, res, err)
			}
		} else if back, err := l.Refund(ctx, "k", rule, -step); err != nil || back != -step {
			t.Fatalf("%d: %d handed back, %v", i, back, err)
		}
		if res, err := l.Take(ctx, "k", rule, 0); err != nil || res.Remaining != 100-want {
			t.Fatalf("%d: %d remain, want %d (%v)", i, res.Remaining, 100-want, err)
		}
	}
}

// Where there is nothing to take off no generation begins: it would clear what other nodes
// know of a key that Redis has lost.
func TestBatchHandsNothingBack(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		for i, rule := range []*limit.Rule{funnel(t, 10, 1, 1000*time.Hour), fixed(t, 10, 1000*time.Hour), sliding(t, 10, 1000*time.Hour, 10)} {
			back := Op{Key: s.Keyspace().CounterKey(rule, "k"), Rule: rule, Back: arithOf(rule).Cost(5), BackTop: arithOf(rule).Full}
			if rule.Algorithm() != limit.AlgorithmFunnel {
				back = Op{Key: back.Key, Rule: rule, BackBuckets: []Bucket{{ID: b.now() / widthUS(rule), Units: 5}}}
			}
			node, shard := fmt.Sprint("n", i), s.Keyspace().Shard("k")
			if st := exec(t, s, &Batch{Shard: shard, Node: node, Seq: 1, Ops: []Op{back}}).States[0]; st.Gen != 0 {
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
		l := &Limiter{srv: s.srv}
		for i, rule := range []*limit.Rule{funnel(t, 10, 1, 1000*time.Hour), fixed(t, 10, 1000*time.Hour), sliding(t, 10, 1000*time.Hour, 10)} {
			op := Op{Key: s.Keyspace().CounterKey(rule, "k"), Rule: rule, Units: 5}
			back := Op{Key: op.Key, Rule: rule}
			node := fmt.Sprint("n", i)
			if rule.Algorithm() == limit.AlgorithmFunnel {
				op.Ahead, back.Back, back.BackTop = arithOf(rule).Cost(5), arithOf(rule).Cost(5), arithOf(rule).Full
			} else {
				op.Buckets = []Bucket{{ID: b.now() / widthUS(rule), Units: 5}}
				back.BackBuckets = op.Buckets
			}
			shard := s.Keyspace().Shard("k")
			old := exec(t, s, &Batch{Shard: shard, Node: node, Seq: 1, Ops: []Op{op}}).States[0]
			if err := l.Reset(ctx, "k", rule); err != nil {
				t.Fatal(err)
			}
			take(t, l, "k", rule, 10)
			back.BackGen = old.Gen
			st := exec(t, s, &Batch{Shard: shard, Node: node, Seq: 2, Prev: 1, Ops: []Op{back}}).States[0]
			if left := remains(t, l, "k", rule); left != 0 {
				t.Errorf("%v: %d remain", rule, left)
			}
			back.BackGen = st.Gen
			exec(t, s, &Batch{Shard: shard, Node: node, Seq: 3, Prev: 2, Ops: []Op{back}})
			if left := remains(t, l, "k", rule); left != 5 {
				t.Errorf("%v: %d remain, want 5", rule, left)
			}
			// Redis loses everything. Another node restores what it knew since the
			// reset, but not that it was one.
			b.do("FLUSHALL")
			back.BackGen = old.Gen
			for _, op := range []Op{{Key: op.Key, Rule: rule, Raise: true, Known: st}, back} {
				exec(t, s, &Batch{Shard: shard, Node: fmt.Sprint("m", op.Raise), Seq: 1, Ops: []Op{op}})
			}
			if left := remains(t, l, "k", rule); left != 0 {
				t.Errorf("%v: %d remain of what was restored", rule, left)
			}
		}
	})
}
