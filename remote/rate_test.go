package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
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
			one := func(r *limit.Rule) time.Duration { return r.Period() / time.Duration(r.Units()) }
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

// To go on under another rate begins a generation: by the rate of before more
// has leaked than could have. A mere question says so and writes nothing.
func TestFunnelOfAnotherRateIsNoLoss(t *testing.T) {
	b := onMini(t)
	s := b.store()
	slow, fast := funnel(t, 100, 1, time.Minute), funnel(t, 100, 1, time.Second)
	key := s.Keyspace().CounterKey(slow, "k")
	seq := int64(0)
	do := func(r *limit.Rule, units int64) State {
		seq++
		return exec(t, s, &Batch{Node: "n1", Seq: seq, Prev: seq - 1, Ops: []Op{{Key: key, Rule: r, Units: units, Ahead: r.Cost(units)}}}).States[0]
	}
	do(slow, 50)
	before := b.get(key)
	if st := do(fast, 0); !st.Converted || st.Gen != 0 || b.get(key) != before {
		t.Errorf("asked: %+v, %q", st, b.get(key))
	}
	st := do(fast, 1)
	if st.Gen == 0 || st.Converted || fast.Whole(st.Level) != 51 {
		t.Errorf("written: %+v", st)
	}
	if again := do(fast, 1); again.Gen != st.Gen || again.Converted {
		t.Errorf("written again: %+v, before %+v", again, st)
	}
}
