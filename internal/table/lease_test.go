package table

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What a unit counts as changes at once, for a key that is refused, too.
func TestLeasesEndWithTheMode(t *testing.T) {
	for _, rule := range []*limit.Rule{slow(1), slow(1000)} {
		link := newTestLink()
		table := newTable(t, Options{Link: link})
		now := int64(table.clock.Now())
		for range 3 {
			table.Allow("k", rule, 1, now)
		}
		for _, m := range []struct {
			multiplier int64
			allowed    bool
		}{{counter.MultiplierClosed, false}, {counter.MultiplierOpen, true}, {counter.MultiplierClosed, false}} {
			link.SetMode(m.multiplier, true)
			for range 2 {
				if ok, src := table.Allow("k", rule, 1, now); ok != m.allowed || src != limit.SourceDegraded {
					t.Errorf("%v, multiplier %d: %v, %v", rule, m.multiplier, ok, src)
				}
			}
		}
	}
}

// The same by leases, in single units.
func TestLeasesHoldTheLimitOfWindows(t *testing.T) {
	var rules []*limit.Rule
	for _, l := range []int64{10, 60, 100} {
		for _, buckets := range []int{1, 2, 10, 60} {
			rules = append(rules, windowRule(t, l, 10*time.Second, buckets))
		}
	}
	for _, r := range rules {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed, 86))
			begin := start.UnixNano() + rng.Int64N(1e10)
			c := clock.NewManual(time.Unix(0, begin))
			table := newTable(t, Options{Clock: c})
			log, now := limittest.NewLog(limittest.Window(r)), begin
			for _, a := range limittest.Adverse(rng, r, begin, 300) {
				for now < a.At { // in steps
					step := min(a.At-now, 1+rng.Int64N(limittest.Window(r)/2))
					now = int64(c.Advance(time.Duration(step)))
				}
				for range a.N {
					if ok, _ := table.Allow("k", r, 1, now); !ok {
						break
					}
					log.Add(now, 1)
				}
			}
			if log.Most > limittest.Bound(r) {
				t.Errorf("%v in %d buckets, seed %d: %d units in one window, at most %d are promised", r, arith.Of(r).Buckets, seed, log.Most, limittest.Bound(r))
			}
		}
	}
}
