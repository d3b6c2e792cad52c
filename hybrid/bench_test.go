package hybrid_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// One rule admits more than can be asked for in a second, the other one a unit an hour.
var (
	benchAdmits  = limit.Must(limit.TokenBucket("admits", 10_000_000, time.Second, 1_000_000_000))
	benchRefuses = limit.Must(limit.TokenBucket("refuses", 1, time.Hour, 1))
)

// BenchmarkAllow: a check of a known key, by a limiter that reports all keys to a Redis. No
// check waits for it, or allocates. What the reports allocate counts as well, but there are many
// checks to each. Module bench compares with other limiters.
func BenchmarkAllow(b *testing.B) {
	fmt.Println("# Loops find their keys in the caches of the processor: 50 to 200 ns a check.\n" +
		"# Between the other work of a service, plan with 1 µs. The line 10000-keys/admitted comes closest.")
	l := realNode(b, benchRedis(b), hybrid.Options{})
	for _, c := range []struct {
		name     string
		keys     int
		rule     *limit.Rule
		parallel bool
	}{
		{"one-key/admitted", 1, benchAdmits, false},
		{"one-key/refused", 1, benchRefuses, false},
		{"one-key/parallel", 1, benchAdmits, true},
		{"10000-keys/admitted", 10_000, benchAdmits, false},
		{"10000-keys/parallel", 10_000, benchAdmits, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			keys := benchKeys(b, l, c.rule, c.keys)
			want := c.rule == benchAdmits
			b.ReportAllocs()
			if c.parallel {
				benchParallel(b, l, keys, c.rule, want)
			} else {
				benchSerial(b, l, keys, c.rule, want)
			}
		})
	}
}

// benchRedis returns the address of a Redis: of a real one if redis-server is installed.
func benchRedis(b *testing.B) string {
	server, err := redistest.Launch(redistest.Options{})
	if errors.Is(err, redistest.ErrNotInstalled) {
		b.Log("redis-server is not installed: an embedded Redis takes time and memory of this process")
		return miniredis.RunT(b).Addr()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	return server.Addr()
}

// benchKeys returns keys that the limiter knows, and so does Redis.
func benchKeys(b *testing.B, l *hybrid.Limiter, rule *limit.Rule, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(i)
	}
	for range 8 { // until they are nothing new
		for _, k := range keys {
			l.Allow(k, rule)
		}
	}
	flush(b, l)
	return keys
}

func benchSerial(b *testing.B, l *hybrid.Limiter, keys []string, rule *limit.Rule, want bool) {
	rng, wrong := rand.New(rand.NewPCG(1, 2)), 0
	for b.Loop() {
		if l.Allow(keys[rng.IntN(len(keys))], rule) != want {
			wrong++
		}
	}
	if wrong > 0 {
		b.Errorf("%d of %d answers were not %v", wrong, b.N, want)
	}
}

func benchParallel(b *testing.B, l *hybrid.Limiter, keys []string, rule *limit.Rule, want bool) {
	var wrong atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		rng, bad := rand.New(rand.NewPCG(rand.Uint64(), 2)), 0
		for pb.Next() {
			if l.Allow(keys[rng.IntN(len(keys))], rule) != want {
				bad++
			}
		}
		wrong.Add(int64(bad))
	})
	if wrong.Load() > 0 {
		b.Errorf("%d of %d answers were not %v", wrong.Load(), b.N, want)
	}
}
