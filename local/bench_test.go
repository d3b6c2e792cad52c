package local

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Two loads: one key, asked by all goroutines (its word is what costs), and a table
// full of keys asked evenly (memory is).
func BenchmarkAllow(b *testing.B) {
	rule := limit.Must(limit.TokenBucket("bench", 1_000_000, time.Second, 1000))
	for _, load := range []struct {
		name string
		keys int
	}{{"hot", 1}, {"uniform", 65536}} {
		l := newLimiter(b, Options{MaxKeys: 2 * load.keys})
		keys := make([]string, load.keys)
		for i := range keys {
			keys[i] = fmt.Sprintf("user %d", i)
			l.Allow(keys[i], rule)
		}
		b.Run("serial/"+load.name, func(b *testing.B) {
			b.ReportAllocs()
			rng := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				l.Allow(keys[rng.IntN(len(keys))], rule)
			}
		})
		b.Run("parallel/"+load.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				rng := rand.New(rand.NewPCG(rand.Uint64(), 2))
				for pb.Next() {
					l.Allow(keys[rng.IntN(len(keys))], rule)
				}
			})
		})
	}
}

// What a key that was never seen before costs, in a table that is full.
func BenchmarkAllowNewKeys(b *testing.B) {
	rule := limit.Must(limit.TokenBucket("bench", 1000, time.Second, 1000))
	l := newLimiter(b, Options{MaxKeys: 1 << 14})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		l.Allow(fmt.Sprintf("new %d", i), rule)
	}
}

func BenchmarkTake(b *testing.B) {
	rule := limit.Must(limit.TokenBucket("bench", 1_000_000, time.Second, 1000))
	l := newLimiter(b, Options{})
	l.Allow("k", rule)
	b.ReportAllocs()
	for b.Loop() {
		l.Take("k", rule, 1)
	}
}
