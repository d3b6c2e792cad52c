package local

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// callRules are one rule of each kind, each of 10 units that are whole after a
// minute.
func callRules() []*limit.Rule {
	return []*limit.Rule{
		limit.Must(limit.TokenBucket("f", 10, time.Minute, 10)),
		limit.Must(limit.SlidingWindow("s", 10, time.Minute)),
		limit.Must(limit.FixedWindow("x", 10, time.Minute)),
		limit.Must(limit.SlidingLog("l", 10, time.Minute)),
	}
}

func forCallRules(t *testing.T, test func(t *testing.T, l *Limiter, c *clock.Manual, r *limit.Rule)) {
	for _, r := range callRules() {
		t.Run(arith.Of(r).Algorithm.String(), func(t *testing.T) {
			c := clock.NewManual(start.Truncate(time.Minute))
			test(t, newLimiter(t, Options{Clock: c}), c, r)
		})
	}
}

func ExampleLimiter_TakeAtMost() {
	noon := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	l, err := New(Options{Clock: noon})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	rows := limit.Must(limit.TokenBucket("rows", 10, time.Second, 100))
	for range 3 {
		granted, res := l.TakeAtMost("export", rows, 60)
		fmt.Println(granted, res.RetryAfter)
	}
	// Output:
	// 60 0s
	// 40 0s
	// 0 100ms
}

func ExampleLimiter_Refund() {
	noon := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	l, err := New(Options{Clock: noon})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	mails := limit.Must(limit.FixedWindow("mails", 100, time.Hour))
	l.Take("alice", mails, 30)
	fmt.Println(l.Refund("alice", mails, 20), l.Peek("alice", mails).Remaining)
	// Output: 20 90
}

// Every call, in any order, agrees with a counter that is slow and simple, also about when a unit fits again. A charge
// counts what does not fit, up to what can be held: a leaky bucket twice its capacity, a log its limit.
//
// Faults 41, 42, 43, 44, 101: no n takes more than it was admitted for, and units are charged above the limit.
func TestCallsAgainstReference(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 4))
		l := rng.Int64N(31)
		period := time.Duration(1+rng.Int64N(5000)) * time.Millisecond
		r := []*limit.Rule{
			limit.Must(limit.TokenBucket("f", 1+rng.Int64N(40), period, l)),
			limit.Must(limit.SlidingWindowBuckets("s", l, period*time.Duration(3), 3)),
			limit.Must(limit.FixedWindow("x", l, period)),
			limit.Must(limit.SlidingLog("l", l, period)),
		}[seed%4]
		ref := limittest.NewReference(r)
		c := clock.NewManual(start)
		lim := newLimiter(t, Options{Clock: c})
		wait := time.Duration(0) // until a unit fits
		for step := range 400 {
			if wait == 0 || wait == limit.Never || rng.IntN(4) > 0 {
				wait = time.Duration(rng.Int64N(int64(period) / 3))
			}
			now, n := int64(c.Advance(wait)), rng.Int64N(l+2)
			if rng.IntN(20) == 0 {
				n = []int64{-1, math.MinInt64, math.MaxInt64}[rng.IntN(3)]
			}
			room := ref.Room(now)
			what, got, want := "", int64(0), int64(0)
			switch rng.IntN(10) {
			default:
				what = "take"
				res := lim.Take("k", r, n)
				if res.Allowed {
					got = n
				}
				if never := n < 0 || n > l; never != (res.RetryAfter == limit.Never) {
					t.Fatalf("seed %d, %v, step %d: take %d: %+v", seed, r, step, n, res)
				}
				if n >= 0 && n <= max(room, 0) {
					want = n
				}
				ref.Add(now, want)
			case 0, 1:
				var res limit.Result
				what, want = "at most", max(min(n, room), 0)
				if got, res = lim.TakeAtMost("k", r, n); res.Allowed != (n == 0 || want > 0) || res.Allowed != (res.RetryAfter == 0) {
					t.Fatalf("seed %d, %v, step %d: at most %d: %+v", seed, r, step, n, res)
				}
				ref.Add(now, want)
			case 2, 3:
				what, want = "refund", ref.Refund(now, max(n, 0))
				got = lim.Refund("k", r, n)
			case 4:
				n = rng.Int64N(4*l + 2)
				what, want = "charge", n
				switch arith.Of(r).Algorithm {
				case arith.TokenBucket:
					want = max(min(n, room+l), 0)
				case arith.SlidingLog:
					want = max(min(n, room), 0)
				}
				got = lim.Charge("k", r, n)
				ref.Add(now, want)
			case 5:
				if rng.IntN(4) == 0 {
					n = rng.Int64N(3*l + 2)
					what, ref = "set", limittest.NewReference(r)
					if err := lim.Set("k", r, n); err != nil {
						t.Fatal(err)
					}
					if arith.Of(r).Algorithm == arith.SlidingLog {
						n = min(n, l)
					}
					ref.Add(now, n)
				}
			}
			res := lim.Peek("k", r)
			if left := max(ref.Room(now), 0); got != want || res.Remaining != left {
				t.Fatalf("seed %d, %v, step %d: %s %d: %d, want %d; %d remain, want %d", seed, r, step, what, n, got, want, res.Remaining, left)
			}
			wait = res.RetryAfter
			if at := now + int64(wait); wait == limit.Never != (l == 0) || !res.Allowed && l > 0 && (ref.Room(at) < 1 || ref.Room(at-1) > 0) {
				t.Fatalf("seed %d, %v, step %d: %s %d: a unit fits in %v", seed, r, step, what, n, wait)
			}
		}
	}
}

// What cannot be set changes nothing, and no debt wraps.
func TestSetAndReset(t *testing.T) {
	forCallRules(t, func(t *testing.T, l *Limiter, _ *clock.Manual, r *limit.Rule) {
		if err := l.Set("k", r, math.MaxInt64); err != nil || l.Allow("k", r) {
			t.Errorf("admitted above an endless debt, %v", err)
		}
		if err := l.Reset("k", r); err != nil || l.Peek("k", r).Remaining != 10 {
			t.Errorf("reset: %+v, %v", l.Peek("k", r), err)
		}
		if err := l.Set("k", r, -1); !errors.Is(err, limit.ErrInvalidN) || l.Peek("k", r).Remaining != 10 {
			t.Errorf("-1: %v", err)
		}
	})
	if err := newLimiter(t, Options{}).Reset("k", nil); !errors.Is(err, limit.ErrNilRule) {
		t.Errorf("no rule: %v", err)
	}
	var zero Limiter
	if err := zero.Reset("k", callRules()[0]); !errors.Is(err, limit.ErrClosed) || zero.Refund("k", callRules()[0], 1) != 0 {
		t.Errorf("zero limiter: %v", err)
	}
}
