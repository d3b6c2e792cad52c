package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A full bucket is under way while Redis is away, and meanwhile a unit a second is admitted,
// as fast as it leaks. When Redis gets the first report, what it carries has leaked, and
// Redis forgets it; then it counts the second report from empty. That is no loss. The bucket
// is full all the same, and Redis is to hear that. Others may have filled the bucket before it
// ran empty: then the units of the outage are forgiven as Redis does it, and no others.
func TestForgottenIsNotLost(t *testing.T) {
	const second = int64(time.Second)
	r := limit.Must(limit.TokenBucket("f", 1, time.Second, 10))
	for name, c := range map[string]struct {
		maxDebt     time.Duration
		debt        int   // how many of the 20 units are admitted in an outage
		first, wait int64 // the answer to the first report, and the time to the second
		then        int64 // the answer to that
		lost        bool
		want        int64 // what is restored
	}{
		"as it ran empty":       {0, 20, -10 * second, 0, second, false, 10 * second},
		"filled by others":      {0, 20, -second / 2, 2 * second, -second, false, 17*second + second/2},
		"and no debt":           {-1, 20, -second / 2, 2 * second, -second, false, 10*second + second/2},
		"3 of an outage":        {-1, 3, -second / 2, 2 * second, -second, false, 14*second + second/2},
		"none of an outage":     {-1, 0, -second / 2, 2 * second, -second, false, 17*second + second/2},
		"no less than answered": {-1, 20, -second / 2, 2 * second, 12 * second, false, 12 * second},
		"not empty, and lost":   {-1, 20, 3 * second, 2 * second, -second, true, 21 * second},
	} {
		link, now := newTestLink(), int64(1e12)
		link.SetMaxDebt(c.maxDebt)
		k := NewAlone("k", r, link, now)
		admit := func(n int64) {
			if res, _ := k.take(now, n, r); !res.Allowed {
				t.Fatalf("%s: %+v", name, res)
			}
		}
		exchange := func(units int64) {
			if rep, ok := k.collect(now, Normal); !ok || rep.Units != units || rep.Restore {
				t.Fatalf("%s: %d units to report, not %+v", name, units, rep)
			}
		}
		settle := func(level int64) Outcome {
			return k.Settle(now, report.Answer{Rule: r, State: report.State{Level: arith.Span{NS: level}}, At: now, ServerNow: now, Slack: 1})
		}
		admit(10)
		exchange(10)
		for i := range 20 {
			link.SetMode(1, i < c.debt)
			now += second
			admit(1)
		}
		link.SetMode(1, false)
		settle(c.first)
		exchange(20)
		now += c.wait
		out := settle(c.then)
		rep := k.resend(now, false)
		if out.Lost != c.lost || !out.Again || !rep.Restore || rep.Known.Level.NS != c.want {
			t.Errorf("%s: lost %v, raises %v to %v, want %v", name, out.Lost, rep.Restore, rep.Known.Level, time.Duration(c.want))
		}
	}
}
