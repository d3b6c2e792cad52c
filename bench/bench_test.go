package bench

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// A limit that is not reached in a second of asking, and one that always is.
const (
	manyUnits  = 1_000_000_000
	manyPerSec = 10_000_000
)

var (
	generous = limit.Must(limit.Funnel("generous", manyUnits, manyPerSec, time.Second))
	usedUp   = limit.Must(limit.Funnel("used up", 1, 1, time.Hour))
	window   = limit.Must(limit.SlidingWindow("window", manyUnits, time.Minute))
	hourly   = limit.Must(limit.FixedWindow("hourly", manyUnits, time.Hour))
)

// uniform is the number of keys of the load that asks them all evenly. It
// must be a power of two.
const uniform = 1 << 16

// keyNames returns n keys, made before the clock runs.
func keyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "user:" + strconv.Itoa(i)
	}
	return names
}

// check asks for one unit of a key.
type check func(key string) bool

// contender is a limiter to be measured: open makes one with room for the
// keys. A limiter of its own rule is not told which.
type contender struct {
	name string
	open func(b *testing.B, rule *limit.Rule) check
}

var contenders = []contender{
	{"hybrid-alone", openAlone},
	{"hybrid-synced", openSynced},
	{"local", openLocal},
	{"xtime-map", openMap},
}

// openAlone is the hybrid limiter without a Redis.
func openAlone(b *testing.B, rule *limit.Rule) check {
	return hybridCheck(open(b, nil), rule)
}

// openSynced is the hybrid limiter with a Redis embedded in this process: what
// that needs of the processors comes on top, as it would on a machine that
// Redis shares.
func openSynced(b *testing.B, rule *limit.Rule) check {
	return hybridCheck(open(b, redis.NewClient(&redis.Options{
		Addr: miniredis.RunT(b).Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
	})), rule)
}

func hybridCheck(l *hybrid.Limiter, rule *limit.Rule) check {
	return func(key string) bool { return l.Allow(key, rule) }
}

// open returns a limiter that is closed with the benchmark, without waiting
// for its last report.
func open(b *testing.B, rdb *redis.Client) *hybrid.Limiter {
	b.Helper()
	var client redis.UniversalClient // nil, unlike an interface that holds a nil client
	if rdb != nil {
		client = rdb
		b.Cleanup(func() { rdb.Close() })
	}
	l, err := hybrid.New(client, hybrid.Options{MaxKeys: 2 * uniform})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = l.Close(ctx) // says what it could not report
	})
	return l
}

func openLocal(b *testing.B, rule *limit.Rule) check {
	l, err := local.New(local.Options{MaxKeys: 2 * uniform})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Close)
	return func(key string) bool { return l.Allow(key, rule) }
}

// openMap is what one writes without a library: an x/time/rate limiter per key
// in a map that forgets nothing.
func openMap(_ *testing.B, rule *limit.Rule) check {
	every := rate.Limit(float64(rule.Units()) / rule.Period().Seconds())
	burst := int(rule.Limit())
	var m sync.Map
	return func(key string) bool {
		v, ok := m.Load(key)
		if !ok {
			v, _ = m.LoadOrStore(key, rate.NewLimiter(every, burst))
		}
		return v.(*rate.Limiter).Allow()
	}
}

// warmUp is how long keys are asked before the clock runs: a limiter may put
// new keys in order in the background.
const warmUp = 200 * time.Millisecond

// measure times checks of keys that are all known, from one goroutine and from
// all processors.
func measure(b *testing.B, keys []string, ask check) {
	for begun := time.Now(); time.Since(begun) < warmUp; {
		for _, k := range keys {
			ask(k)
		}
	}
	mask := uint64(len(keys) - 1)
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		rng := rand.NewPCG(1, 2)
		for b.Loop() {
			ask(keys[rng.Uint64()&mask])
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			rng := rand.NewPCG(rand.Uint64(), 2)
			for pb.Next() {
				ask(keys[rng.Uint64()&mask])
			}
		})
	})
}

// BenchmarkAllow: a check that is admitted. hot is one key that everybody
// asks, uniform 65,536 asked evenly.
func BenchmarkAllow(b *testing.B) {
	keys := keyNames(uniform)
	for _, c := range contenders {
		b.Run(c.name+"/hot", func(b *testing.B) { measure(b, keys[:1], c.open(b, generous)) })
		b.Run(c.name+"/uniform", func(b *testing.B) { measure(b, keys, c.open(b, generous)) })
	}
	b.Run("xtime-single/hot", func(b *testing.B) { // the floor: no key, no map
		l := rate.NewLimiter(manyPerSec, manyUnits)
		measure(b, keys[:1], func(string) bool { return l.Allow() })
	})
}

// BenchmarkRefused: a check that is refused, as most are in an attack.
func BenchmarkRefused(b *testing.B) {
	for _, c := range contenders {
		b.Run(c.name+"/hot", func(b *testing.B) { measure(b, keyNames(1), c.open(b, usedUp)) })
	}
}

// BenchmarkTake: a check with the whole answer, by algorithm.
func BenchmarkTake(b *testing.B) {
	for _, rule := range []*limit.Rule{generous, window} {
		l := open(b, nil)
		b.Run("hybrid-alone/"+rule.Algorithm().String(), func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool { return l.Take(key, rule, 1).Allowed })
		})
	}
}

// BenchmarkPreload: a thousand keys of another node, from a Redis embedded in
// this process.
func BenchmarkPreload(b *testing.B) {
	l := open(b, redis.NewClient(&redis.Options{Addr: miniredis.RunT(b).Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true}))
	keys, next := make([]string, 1000), 0
	for b.Loop() {
		for i := range keys {
			keys[i] = strconv.Itoa(next)
			next++
		}
		if err := l.Preload(context.Background(), window, keys...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCalls: the other calls, each on a key that it leaves as it was.
func BenchmarkCalls(b *testing.B) {
	for _, rule := range []*limit.Rule{generous, window} {
		l := open(b, nil)
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/at-most", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				granted, _ := l.TakeAtMost(key, rule, 1)
				return granted > 0
			})
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/set", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool { return l.Set(context.Background(), key, rule, 1) == nil })
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/dry-run", func(b *testing.B) {
			dry := rule.DryRun()
			measure(b, keyNames(1), func(key string) bool { return l.Allow(key, dry) })
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/take-all-of-3", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				return l.TakeAll(limit.Check{Key: key, Rule: rule, N: 1}, limit.Check{Key: key, Rule: hourly, N: 1},
					limit.Check{Key: "tenant", Rule: rule, N: 1}).Allowed
			})
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/reserve-and-cancel", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				r := l.Reserve(key, rule, 1)
				r.Cancel()
				return r.OK()
			})
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/wait", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool { return l.Wait(context.Background(), key, rule, 1) == nil })
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/take-and-refund", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				l.Allow(key, rule)
				return l.Refund(key, rule, 1) > 0
			})
		})
	}
}
