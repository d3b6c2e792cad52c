package hybrid_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// hostileRules are of every kind that is shared, from short to long.
var hostileRules = []*limit.Rule{
	longTen, longFunnel,
	limit.Must(limit.SlidingWindow("short", 10, time.Second)),
	limit.Must(limit.Funnel("quick", 10, 7, time.Second)),
	limit.Must(limit.FixedWindow("fixed", 10, time.Minute)),
	limit.Must(limit.SlidingWindowBuckets("big", limit.MaxUnits, 24*time.Hour, 2)),
}

// FuzzHostileRedis lets a limiter talk to a Redis that lies, and then to an
// honest one. The lies may make it refuse or admit wrongly. They must not make
// it panic, hang, answer nonsense, lose count of its own units, or grow; and
// once Redis is honest they must be overcome.
//
// CI runs it 1000 times.
func FuzzHostileRedis(f *testing.F) {
	for i := range byte(30) {
		f.Add(bytes.Repeat([]byte{i, 7 * i, 3, i + 1, 5, 2 * i, 251 - i}, 12), bytes.Repeat([]byte{i, i + 1, 9, i / 2, 13}, 30))
	}
	f.Fuzz(func(t *testing.T, asks, lies []byte) {
		synctest.Test(t, func(t *testing.T) { playHostile(t, asks[:min(len(asks), 60)], lies) })
	})
}

func playHostile(t *testing.T, asks, lies []byte) {
	used := 0
	forger := newForger(func() byte {
		if len(lies) == 0 {
			return 0
		}
		used++
		return lies[used%len(lies)] + byte(used/len(lies))
	})
	rdb := redis.NewClient(clientOptions("127.0.0.1:6379"))
	defer rdb.Close()
	rdb.AddHook(forger)
	l := newLimiter(t, rdb, hybrid.Options{MaxKeys: 64})
	goroutines := runtime.NumGoroutine()
	for ; len(asks) >= 3; asks = asks[3:] {
		key, rule := fmt.Sprint("k", asks[0]%3), hostileRules[int(asks[0]/3)%len(hostileRules)]
		ns := []int64{1, 1, 2, 5, 10, 11, 0, 1 << 53, 1<<53 - 1, math.MaxInt64, -1, math.MinInt64}
		n := ns[int(asks[1])%len(ns)]
		wantSense(t, rule, n, l.Take(key, rule, n))
		conserved(t, l, false)
		steps := []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, time.Second, 6 * time.Second}
		time.Sleep(steps[int(asks[2])%len(steps)])
		if got := runtime.NumGoroutine(); got > goroutines+8 {
			t.Fatalf("%d goroutines, then %d", goroutines, got)
		}
	}
	forger.mu.Lock()
	forger.honest = true
	forger.mu.Unlock()
	time.Sleep(45 * time.Second) // the longest back-off, the quarantine, half a short bucket
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	for _, rule := range hostileRules { // a key that looked unused has been forgotten
		if err := l.Preload(ctx, []string{"k0", "k1", "k2"}, rule); err != nil {
			t.Fatalf("preload: %v", err)
		}
	}
	for range 2 { // what the first one finds missing in Redis is reported again by the second
		if err := l.Flush(ctx); err != nil {
			t.Fatalf("flush: %v (%v, %+v)", err, l.State(), l.Stats())
		}
		time.Sleep(time.Second)
	}
	wantMode(t, l, hybrid.Synced)
	conserved(t, l, true)
	if live := l.Stats().LiveCounters; live > int64(3*len(hostileRules)) {
		t.Fatalf("%d counters", live)
	}
	for _, rule := range hostileRules {
		for i := range 3 {
			key := fmt.Sprint("k", i)
			wantView(t, l, forger, key, rule)
		}
	}
}

// wantSense checks that an answer makes sense in itself.
func wantSense(t *testing.T, rule *limit.Rule, n int64, res limit.Result) {
	t.Helper()
	switch {
	case res.Remaining < 0 || res.Remaining > rule.Limit() || res.Limit != rule.Limit(),
		res.RetryAfter < 0 || res.ResetAfter < 0 || res.Allowed != (res.RetryAfter == 0),
		(n < 0 || n > rule.Limit()) && (res.Allowed || res.RetryAfter != limit.Never),
		n == 0 && !res.Allowed:
		t.Fatalf("%v, n = %d: %+v", rule, n, res)
	}
}

// wantView checks that a limiter knows what Redis counts. Redis' clock shows
// whole microseconds only, so that views may be apart by what leaks in two.
func wantView(t *testing.T, l *hybrid.Limiter, f *forger, key string, rule *limit.Rule) {
	t.Helper()
	got := l.Peek(key, rule).Remaining
	lo := f.remaining(key, rule, time.Now().Add(-2*time.Microsecond))
	hi := f.remaining(key, rule, time.Now().Add(2*time.Microsecond))
	if got < lo-1 || got > hi+1 {
		f.mu.Lock()
		defer f.mu.Unlock()
		t.Fatalf("%v: %q has %d left, in Redis %d to %d %+v %+v %+v", rule, key, got, lo, hi, f.counters[counterKey(rule, key)], l.Peek(key, rule), l.Stats())
	}
}
