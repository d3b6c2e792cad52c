package remote

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// offer asks for a load, as much as there is of each, at the times of the load.
func (b *backend) offer(l *Limiter, key string, r *limit.Rule, load []limittest.Ask) *limittest.Log {
	b.t.Helper()
	log := limittest.NewLog(limittest.Window(r))
	for _, a := range load {
		b.at = time.Unix(0, a.At)
		b.mini.SetTime(b.at)
		n, _, err := l.TakeAtMost(ctx, key, r, a.N)
		if err != nil {
			b.t.Fatal(err)
		}
		if n > 0 {
			log.Add(b.now()*1000, n)
		}
	}
	return log
}

// No window, wherever it begins, holds more than the limit and one bucket's share of it,
// whatever the load; and nearly as much is admitted as by an exact log.
//
// Fault 85: the scripts hold the bound of a window for any pattern.
func TestWindowHoldsItsLimit(t *testing.T) {
	b := onMini(t)
	l, rng := b.limiter(), rand.New(rand.NewPCG(85, 1))
	for _, limits := range []int64{25, 1 << 40, 1, 3, 10}[:limittest.Cases(5, 2)] {
		for _, buckets := range []int{1, 2, 10, 60, 1000} {
			r := sliding(t, limits, 7*time.Second, buckets)
			begin := func() int64 { return b.at.UnixNano()/1e3*1e3 + limittest.Window(r)*3 + rng.Int64N(1e6)*1000 }
			steps := 80
			if buckets > 100 {
				steps = 20 // of long lists
			}
			for _, what := range []string{"adverse", "heavy-tailed", "bursts 1", "bursts 1.03", "steady 1.2"} {
				var asks []limittest.Ask
				switch what {
				case "adverse":
					asks = limittest.Adverse(rng, r, begin(), steps)
				case "heavy-tailed":
					asks = limittest.HeavyTailed(rng, r, begin(), 3*steps)
				case "bursts 1":
					asks = limittest.Bursts(r, begin(), 1, 20)
				case "bursts 1.03":
					asks = limittest.Bursts(r, begin(), 1.03, 20)
				default:
					if limits > 100 || buckets > 60 {
						continue
					}
					asks = limittest.Steady(r, begin(), 1.2, 12)
				}
				for i := range asks {
					asks[i].At = asks[i].At / 1000 * 1000 // Redis' clock shows whole µs
				}
				log, exact := b.offer(l, fmt.Sprint(what, buckets, limits), r, asks), limittest.NewLog(limittest.Window(r))
				for _, a := range asks {
					exact.TakeAtMost(a.At, a.N, r.Limit())
				}
				if log.Most > limittest.Bound(r) {
					t.Errorf("%v in %d buckets, %s: %d units in one window, at most %d are promised", r, buckets, what, log.Most, limittest.Bound(r))
				}
				if limits >= 10 && what != "adverse" && log.Total*100 < exact.Total*97 {
					t.Errorf("%v in %d buckets, %s: %d units admitted, an exact log admits %d", r, buckets, what, log.Total, exact.Total)
				}
			}
		}
	}
}
