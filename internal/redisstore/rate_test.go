package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A key goes on under another rate with as many units as it had.
func TestFunnelOfAnotherRate(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for i, to := range []*limit.Rule{
			funnel(t, 1000, 11, time.Hour), funnel(t, 1000, 7, time.Minute), funnel(t, 1000, 1, 24*time.Hour),
			funnel(t, 1000, 7_000_000, time.Hour), funnel(t, 5, 14, 2*time.Hour),
		} {
			key, from := fmt.Sprint("k", i), funnel(t, 1000, 7, time.Hour)
			take(t, l, key, from, 300)
			one := func(r *limit.Rule) time.Duration { return r.Period() / time.Duration(arith.Of(r).Units) }
			begun := clock.System{}.Now()
			res, want := take(t, l, key, to, 0), 300*one(to)
			// A second of the old rate may have passed, in units of the new one.
			if early := one(to) * time.Second / one(from); res.ResetAfter > want+2*time.Microsecond || res.ResetAfter < want-early-time.Second {
				t.Errorf("%v: %s, want a reset after %v", to, show(res), want)
			}
			take(t, l, key, to, 1)
			res = take(t, l, key, from, 0)
			// Whole units may have leaked at the new rate since.
			leaked := int64((clock.System{}.Now() - begun) / one(to))
			if res.Remaining < 698 || res.Remaining > 702+leaked {
				t.Errorf("%v and back: %s", to, show(res))
			}
		}
	})
}

// The keys of a batch are read at once. That is no reason to miss what the batch
// itself has written, nor that a key has leaked at another rate, of as many digits.
func TestBatchReadsAhead(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		two, three := funnel(t, 100, 1, 2*time.Hour), funnel(t, 100, 1, 3*time.Hour)
		key, other := s.Keyspace().CounterKey(two, "k"), s.Keyspace().CounterKey(two, "other")
		seq := int64(0)
		do := func(rule *limit.Rule, units ...int64) report.State {
			seq++
			batch := &Batch{Node: "n1", Seq: seq, Prev: seq - 1, Ops: []report.Report{{Key: other, Rule: two, Units: 1, Ahead: arith.Of(two).Cost(1)}}}
			for _, n := range units {
				batch.Ops = append(batch.Ops, report.Report{Key: key, Rule: rule, Units: n, Ahead: arith.Of(rule).Cost(n)})
			}
			states := exec(t, s, batch).States
			return states[len(states)-1]
		}
		do(two, 5)
		if st := do(two, 3, 4); arith.Of(two).Whole(arith.Of(two).Add(st.Level, arith.Span{NS: int64(time.Minute)})) != 12 {
			t.Errorf("5, 3 and 4 units are %v", st.Level)
		}
		if st := do(three, 1); st.Gen == 0 || arith.Of(three).Whole(arith.Of(three).Add(st.Level, arith.Span{NS: int64(time.Minute)})) != 13 {
			t.Errorf("12 units and 1 at another rate: %+v", st)
		}
	})
}

// Who may not read many keys at once still gets them one by one.
func TestBatchWithoutMGET(t *testing.T) {
	b := onReal(t)
	if err := b.rdb.Do(ctx, "ACL", "SETUSER", "app", "on", "nopass", "~*", "+@all", "-mget").Err(); err != nil {
		t.Fatal(err)
	}
	o := options(b.addr)
	o.Username, o.Password = "app", "any"
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	s := limit.Must(NewStore(rdb, Options{}))
	rule := funnel(t, 100, 1, time.Hour)
	key := s.Keyspace().CounterKey(rule, "k")
	shard := s.Keyspace().Shard("k")
	for seq := range int64(3) {
		batch := &Batch{Shard: shard, Node: "n1", Seq: seq + 1, Prev: seq, Ops: []report.Report{{Key: key, Rule: rule, Units: 2, Ahead: arith.Of(rule).Cost(2)}}}
		level := exec(t, s, batch).States[0].Level
		if got := arith.Of(rule).Whole(arith.Of(rule).Add(level, arith.Span{NS: int64(time.Minute)})); got != 2*seq+2 {
			t.Errorf("%d units are booked, want %d", got, 2*seq+2)
		}
	}
}

// Nodes take units at a steady pace, each slower than they leak: by the time that one reports them
// they have leaked by themselves. Together they come faster than they leak, so a bucket that is
// new must not be forgotten between two reports. What came long before is forgotten.
func TestUnitsThatHaveLeakedAloneAddUp(t *testing.T) {
	const leak, ago = 100 * time.Millisecond, 50 * time.Millisecond // of a unit; since when the units of a report have leaked
	for _, c := range []struct {
		lag, between time.Duration
		debt         int64 // 1: the script takes the long way
	}{
		{0, 100 * time.Millisecond, 0},
		{0, 100 * time.Millisecond, 1},
		{10 * time.Second, 10 * time.Second, 0},
		{10 * time.Second, 10 * time.Second, 1},
	} {
		b := onMini(t)
		s, r := b.store(), funnel(t, 1000, 10, time.Second)
		key, units := s.Keyspace().CounterKey(r, "k"), int64(2*c.between/leak) // twice as fast as they leak
		report := func(node string, seq int64) time.Duration {
			op := report.Report{Key: key, Rule: r, Units: units, Ahead: arith.Span{NS: -int64(ago)}, Debt: c.debt, Ceiling: arith.Of(r).Full}
			return time.Duration(exec(t, s, &Batch{Node: node, Seq: seq, Prev: seq - 1, MaxLag: c.lag, Ops: []report.Report{op}}).States[0].Level.NS)
		}
		want := -ago
		for seq := int64(1); seq < 4; seq++ {
			for _, node := range []string{"n1", "n2", "n3"} {
				if got := report(node, seq); got != want {
					t.Fatalf("%+v: report %d of %s: the bucket is empty in %v, want %v", c, seq, node, got, want)
				}
				b.advance(c.between)
				want += c.between
			}
		}
		b.advance(want + c.lag + 1100*time.Millisecond)
		if got := report("n1", 4); got != -ago {
			t.Errorf("%+v: long after it was empty it is empty in %v", c, got)
		}
	}
}
