package bench

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

const mega = 1e6

// BenchmarkTraffic: what a million checks of 10,000 keys, asked evenly, cost
// Redis. What the hybrid limiter sends depends on time rather than on checks, so
// that it is asked at two rates: 100,000 a second, at which a key is asked about
// once per sync interval and little is saved but the calls, and as fast as one
// goroutine can. The limiter in remote asks once per check, whatever the rate.
func BenchmarkTraffic(b *testing.B) {
	j := startRedis(b)
	keys := keyNames(activeKeys)
	for _, rule := range redisRules {
		name := rule.Algorithm().String()
		b.Run("hybrid/"+name+"/100000-per-s", func(b *testing.B) {
			l := j.node(b, hybrid.Options{MaxKeys: 2 * activeKeys})
			traffic(b, j, func() int { return paced(l, rule, keys) }, func() { flush(b, l) })
		})
		b.Run("hybrid/"+name+"/flat-out", func(b *testing.B) {
			l := j.node(b, hybrid.Options{MaxKeys: 2 * activeKeys})
			traffic(b, j, func() int { return flatOut(l, rule, keys) }, func() { flush(b, l) })
		})
		b.Run("remote/"+name+"/flat-out", func(b *testing.B) {
			rdb := rig.NewPatientClient(j.server.Addr())
			defer rdb.Close()
			l, err := remote.New(rdb, remote.Options{CommandTimeout: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			traffic(b, j, func() int { return oneByOne(b, l, rule, keys) }, func() {})
		})
	}
}

// traffic reports what the checks of all iterations cost, the first excepted:
// it makes the keys known. iteration returns how many checks it was.
func traffic(b *testing.B, j judge, iteration func() int, settle func()) {
	iteration()
	settle()
	j.reset(b)
	before, checks := j.read(b), 0
	for b.Loop() {
		checks += iteration()
	}
	settle()
	after := j.read(b)
	per := mega / float64(checks)
	b.ReportMetric(per*(after.scripts-before.scripts), "scripts/Mchecks")
	b.ReportMetric(per*(after.commands-before.commands), "commands/Mchecks")
	b.ReportMetric(per*(after.in-before.in)/mega, "in-MB/Mchecks")
	b.ReportMetric(per*(after.out-before.out)/mega, "out-MB/Mchecks")
	b.ReportMetric(per*(after.cpu-before.cpu).Seconds(), "cpu-s/Mchecks")
}

// paced asks 100,000 times in a second, 100 every millisecond.
func paced(l *hybrid.Limiter, rule *limit.Rule, keys []string) (checks int) {
	rng := rand.New(rand.NewPCG(1, 2))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < time.Second; <-tick.C {
		// Ticks that the machine was too busy for are made up for.
		for due := int(time.Since(begun) / (10 * time.Microsecond)); checks < due; checks++ {
			l.Allow(keys[rng.IntN(len(keys))], rule)
		}
	}
	return checks
}

// flatOut asks for half a second, several intervals of reporting.
func flatOut(l *hybrid.Limiter, rule *limit.Rule, keys []string) (checks int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for begun := time.Now(); time.Since(begun) < time.Second/2; {
		for range 1000 {
			l.Allow(keys[rng.IntN(len(keys))], rule)
		}
		checks += 1000
	}
	return checks
}

func oneByOne(b *testing.B, l *remote.Limiter, rule *limit.Rule, keys []string) int {
	rng := rand.New(rand.NewPCG(1, 2))
	const checks = 2000
	for range checks {
		if _, err := l.Take(context.Background(), keys[rng.IntN(len(keys))], rule, 1); err != nil {
			b.Fatal(err)
		}
	}
	return checks
}
