package local

import (
	"errors"
	"fmt"
	"math"
	"math/big"
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
		limit.Must(limit.Funnel("f", 10, 10, time.Minute)),
		limit.Must(limit.SlidingWindow("s", 10, time.Minute)),
		limit.Must(limit.FixedWindow("x", 10, time.Minute)),
		limit.Must(limit.SlidingLog("l", 10, time.Minute)),
	}
}

func forCallRules(t *testing.T, test func(t *testing.T, l *Limiter, c *clock.Manual, r *limit.Rule)) {
	for _, r := range callRules() {
		t.Run(r.Algorithm().String(), func(t *testing.T) {
			c := clock.NewManual(start.Truncate(time.Minute))
			test(t, newLimiter(t, Options{Clock: c}), c, r)
		})
	}
}

func TestTakeAtMost(t *testing.T) {
	forCallRules(t, func(t *testing.T, l *Limiter, c *clock.Manual, r *limit.Rule) {
		for _, step := range []struct {
			n, granted, remaining int64
		}{{0, 0, 10}, {7, 7, 3}, {0, 0, 3}, {5, 3, 0}, {0, 0, 0}, {1, 0, 0}, {math.MaxInt64, 0, 0}} {
			granted, res := l.TakeAtMost("k", r, step.n)
			if granted != step.granted || res.Remaining != step.remaining || res.Limit != 10 {
				t.Fatalf("at most %d: %d granted, %+v, want %d and %d remaining", step.n, granted, res, step.granted, step.remaining)
			}
			if ok := step.granted > 0 || step.n == 0; res.Allowed != ok || (res.RetryAfter > 0) == ok {
				t.Fatalf("at most %d: %+v", step.n, res)
			}
		}
		_, res := l.TakeAtMost("k", r, 5)
		c.Advance(res.RetryAfter - 1)
		if granted, _ := l.TakeAtMost("k", r, 5); granted != 0 {
			t.Errorf("%d granted before it was time", granted)
		}
		c.Advance(1)
		if granted, _ := l.TakeAtMost("k", r, 5); granted == 0 {
			t.Error("none granted when it was time")
		}
		if granted, res := l.TakeAtMost("other", r, math.MaxInt64); granted != 10 || !res.Allowed {
			t.Errorf("all there is: %d, %+v", granted, res)
		}
		if granted, res := l.TakeAtMost("other", r, -1); granted != 0 || res.Allowed || res.RetryAfter != limit.Never {
			t.Errorf("-1: %d, %+v", granted, res)
		}
	})
	none := limit.Must(limit.Funnel("none", 0, 1, time.Second))
	if granted, res := newLimiter(t, Options{}).TakeAtMost("k", none, 1); granted != 0 || res.Allowed || res.RetryAfter != limit.Never {
		t.Errorf("of a limit of 0: %d, %+v", granted, res)
	}
}

func TestRefund(t *testing.T) {
	forCallRules(t, func(t *testing.T, l *Limiter, c *clock.Manual, r *limit.Rule) {
		if back := l.Refund("k", r, 5); back != 0 {
			t.Errorf("%d handed back of a key that nobody has used", back)
		}
		l.Take("k", r, 7)
		for _, step := range []struct{ n, back, remaining int64 }{{0, 0, 3}, {-1, 0, 3}, {math.MinInt64, 0, 3}, {3, 3, 6}, {math.MaxInt64, 4, 10}, {1, 0, 10}} {
			back := l.Refund("k", r, step.n)
			if res := l.Take("k", r, 0); back != step.back || res.Remaining != step.remaining {
				t.Fatalf("refund of %d: %d handed back, %d remain, want %d and %d", step.n, back, res.Remaining, step.back, step.remaining)
			}
		}
		// What counts no longer is not handed back.
		l.Take("k", r, 7)
		c.Advance(3 * time.Minute)
		l.Take("k", r, 2)
		if back := l.Refund("k", r, 9); back != 2 {
			t.Errorf("%d handed back of 2 that count", back)
		}
	})
}

// What is handed back is what counts less: after a minute nothing does of a sliding window, though
// its oldest bucket is still there, and before that a part.
func TestRefundOfAFadedBucket(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("mails", 5, time.Minute))
	for wait := 54 * time.Second; wait <= 61*time.Second; wait += 500 * time.Millisecond {
		for n := range int64(7) {
			c := clock.NewManual(start.Truncate(time.Minute))
			l := newLimiter(t, Options{Clock: c})
			for range 5 {
				l.Take("k", rule, 1)
				c.Advance(time.Second)
			}
			c.Advance(wait - 5*time.Second)
			left := l.Peek("k", rule).Remaining
			back := l.Refund("k", rule, n)
			if got := l.Peek("k", rule).Remaining; got-left != back || back > n || n >= 5 && got != 5 {
				t.Errorf("after %v %d of 5 remain; a refund of %d says %d, and %d remain", wait, left, n, back, got)
			}
		}
	}
}

func TestSetAndReset(t *testing.T) {
	forCallRules(t, func(t *testing.T, l *Limiter, c *clock.Manual, r *limit.Rule) {
		l.Take("k", r, 4)
		for _, step := range []struct{ used, remaining int64 }{{9, 1}, {2, 8}, {10, 0}, {25, 0}, {0, 10}, {3, 7}} {
			err := l.Set("k", r, step.used)
			if res := l.Take("k", r, 0); err != nil || res.Remaining != step.remaining {
				t.Fatalf("set to %d: %d remain, %v, want %d", step.used, res.Remaining, err, step.remaining)
			}
		}
		if err := l.Set("new", r, 6); err != nil || l.Peek("new", r).Remaining != 4 {
			t.Errorf("a new key: %+v, %v", l.Peek("new", r), err)
		}
		l.Set("new", r, math.MaxInt64)
		if l.Allow("new", r) {
			t.Error("admitted above an endless debt")
		}
		if err := l.Reset("new", r); err != nil || l.Peek("new", r).Remaining != 10 {
			t.Errorf("reset: %+v, %v", l.Peek("new", r), err)
		}
		c.Advance(time.Hour)
		if err := l.Set("k", r, -1); !errors.Is(err, limit.ErrInvalidN) || l.Peek("k", r).Remaining != 10 {
			t.Errorf("-1: %v", err)
		}
	})
	if err := newLimiter(t, Options{}).Reset("k", nil); !errors.Is(err, limit.ErrNilRule) {
		t.Errorf("no rule: %v", err)
	}
	if err := new(Limiter).Reset("k", callRules()[0]); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("zero limiter: %v", err)
	}
	if new(Limiter).Refund("k", callRules()[0], 1) != 0 {
		t.Error("a zero limiter hands back")
	}
}

// plain is a counter by the definition, in rational numbers.
type plain interface {
	room(now int64) int64 // whole units that are left, negative for a debt
	add(now, n int64)
	refund(now, n int64) int64
	clear()
}

// slowFunnel leaks.
type slowFunnel struct {
	r     *limit.Rule
	level big.Rat
	at    int64
}

func (f *slowFunnel) leak(now int64) {
	d := new(big.Rat).SetFrac64((now-f.at)*f.r.Units(), int64(f.r.Period()))
	if f.level.Sub(&f.level, d); f.level.Sign() < 0 {
		f.level.SetInt64(0)
	}
	f.at = now
}

func (f *slowFunnel) room(now int64) int64 {
	f.leak(now)
	left := new(big.Rat).Sub(new(big.Rat).SetInt64(f.r.Limit()), &f.level)
	return new(big.Int).Div(left.Num(), left.Denom()).Int64()
}

func (f *slowFunnel) add(now, n int64) {
	f.leak(now)
	f.level.Add(&f.level, new(big.Rat).SetInt64(n))
}

func (f *slowFunnel) refund(now, n int64) int64 {
	f.leak(now)
	up := new(big.Int).Add(f.level.Num(), new(big.Int).Sub(f.level.Denom(), big.NewInt(1)))
	back := min(n, up.Div(up, f.level.Denom()).Int64())
	if f.level.Sub(&f.level, new(big.Rat).SetInt64(back)); f.level.Sign() < 0 {
		f.level.SetInt64(0)
	}
	return back
}

func (f *slowFunnel) clear() { f.level.SetInt64(0) }

// slowWindow is a plain counter of a window.
type slowWindow struct{ *limittest.Buckets }

func (w slowWindow) add(now, n int64) { w.Add(now, n) }

func (w slowWindow) room(now int64) int64 { return w.Rule.Limit() - w.Used(now) }

func (w slowWindow) refund(now, n int64) (back int64) {
	id, before := w.ID(now), w.Used(now)
	for age := range int64(arith.Of(w.Rule).Kept) + 1 {
		k := min(n, w.Units[id-age])
		w.Units[id-age] -= k
		n -= k
	}
	return before - w.Used(now)
}

func (w slowWindow) clear() {
	clear(w.Units)
	clear(w.Last)
}

// slowLog is a plain counter of a log: it keeps the time of every unit.
type slowLog struct {
	r  *limit.Rule
	at []int64
}

func (l *slowLog) count(now int64) (n int64) {
	for _, at := range l.at {
		if at > now-int64(arith.Of(l.r).Width) {
			n++
		}
	}
	return n
}

func (l *slowLog) room(now int64) int64 { return l.r.Limit() - l.count(now) }

func (l *slowLog) add(now, n int64) {
	for range n {
		l.at = append(l.at, now)
	}
}

func (l *slowLog) refund(now, n int64) (back int64) {
	back = min(n, l.count(now))
	l.at = l.at[:len(l.at)-int(back)]
	return back
}

func (l *slowLog) clear() { l.at = nil }

// Every call, in any order, agrees with a counter that is slow and simple.
func TestCallsAgainstReference(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 4))
		l := 1 + rng.Int64N(30)
		period := time.Duration(1+rng.Int64N(5000)) * time.Millisecond
		rules := []*limit.Rule{
			limit.Must(limit.Funnel("f", l, 1+rng.Int64N(40), period)),
			limit.Must(limit.SlidingWindowBuckets("s", l, period*time.Duration(3), 3)),
			limit.Must(limit.FixedWindow("x", l, period)),
			limit.Must(limit.SlidingLog("l", l, period)),
		}
		r := rules[seed%4]
		ref := slowly(r, start.UnixNano())
		c := clock.NewManual(start)
		lim := newLimiter(t, Options{Clock: c})
		for step := range 400 {
			now := int64(c.Advance(time.Duration(rng.Int64N(int64(period) / 3))))
			n := rng.Int64N(l + 2)
			room := ref.room(now)
			what, got, want := "", int64(0), int64(0)
			switch rng.IntN(10) {
			default:
				what = "take"
				if lim.Take("k", r, n).Allowed {
					got = n
				}
				if n <= max(room, 0) {
					want = n
				}
				ref.add(now, want)
			case 0, 1:
				what, want = "at most", min(n, max(room, 0))
				got, _ = lim.TakeAtMost("k", r, n)
				ref.add(now, want)
			case 2, 3, 4:
				what, want = "refund", ref.refund(now, n)
				got = lim.Refund("k", r, n)
			case 5:
				if rng.IntN(4) == 0 {
					what = "set"
					lim.Set("k", r, n)
					ref.clear()
					if r.Algorithm() == limit.AlgorithmSlidingLog {
						n = min(n, l)
					}
					ref.add(now, n)
				}
			}
			left := lim.Take("k", r, 0).Remaining
			if wantLeft := max(ref.room(now), 0); got != want || left != wantLeft {
				t.Fatalf("seed %d, %v, step %d: %s %d: %d, want %d; %d remain, want %d", seed, r, step, what, n, got, want, left, wantLeft)
			}
		}
	}
}

func ExampleLimiter_TakeAtMost() {
	noon := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	l, err := New(Options{Clock: noon})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	rows := limit.Must(limit.Funnel("rows", 100, 10, time.Second))
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
