package remote

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// inBubble runs a test with a miniredis inside of a synctest bubble: time stands
// still while anybody can run, so that waits are exact and cost nothing.
func inBubble(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Last of all, let go-redis' background dials come to their end.
		t.Cleanup(func() { time.Sleep(10 * time.Second) })
		m := miniredis.NewMiniRedis()
		t.Cleanup(m.Close)
		m.ClockTTL(true)            // keys expire by the bubble's time
		o := options("127.0.0.1:1") // never dialled
		// Who has to wait for a connection does so on a timer that go-redis may
		// have got from another bubble.
		o.PoolSize = 1000
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return m.Dial() }
		rdb := redis.NewClient(o)
		t.Cleanup(func() { rdb.Close() })
		test(t, &backend{t: t, rdb: rdb, mini: m})
	})
}

// waited waits and ends the test unless that takes as long as wanted.
func waited(t testing.TB, ctx context.Context, l *Limiter, rule *limit.Rule, n int64, want time.Duration) error {
	t.Helper()
	start := time.Now()
	err := l.WaitN(ctx, "k", rule, n)
	if d := time.Since(start); d != want {
		t.Fatalf("%d of %v: waited %v, want %v (%v)", n, rule, d, want, err)
	}
	return err
}

// For a funnel exactly as long as the units take to leak, one after the other in
// the order of asking.
func TestWaitFunnel(t *testing.T) {
	inBubble(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), funnel(t, 2, 1, time.Second)
		for n, want := range map[int64]time.Duration{0: 0, 2: 0} {
			if err := waited(t, ctx, l, rule, n, want); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 5 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				err := l.WaitN(ctx, "k", rule, int64(1+i%2))
				want := []time.Duration{1, 3, 4, 6, 7}[i] * time.Second
				if d := time.Since(start); err != nil || d != want {
					t.Errorf("waiter %d after %v, %v, want %v", i, d, err, want)
				}
			})
		}
		wg.Wait()
		b.everyKeyExpires()
	})
}

// Who cannot be served in time is told so at once, and takes nothing; who can,
// is served at the last moment.
func TestWaitDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, rule := range []*limit.Rule{funnel(t, 2, 1, time.Second), fixed(t, 2, time.Second), slidingLog(t, 2, time.Second)} {
			take(t, l, "k", rule, 2)
			before := b.dump()
			for _, left := range []time.Duration{1, time.Millisecond, time.Second - 1} {
				short, end := context.WithTimeout(ctx, left)
				err := waited(t, short, l, rule, 1, 0)
				end()
				var late *limit.WaitError
				if !errors.As(err, &late) || late.Need != time.Second || late.Key != "k" || late.Rule != rule {
					t.Fatalf("%v, %v left: %v", rule, left, err)
				}
				if !errors.Is(err, context.DeadlineExceeded) || b.dump() != before {
					t.Fatalf("%v: %v", rule, err)
				}
			}
			long, end := context.WithTimeout(ctx, time.Second+1)
			if err := waited(t, long, l, rule, 1, time.Second); err != nil {
				t.Errorf("%v: %v", rule, err)
			}
			end()
		}
	})
}

// Who gives up hands back what was booked, once: the next one waits as long as
// if nobody had been there.
func TestWaitGivesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, rule := range []*limit.Rule{funnel(t, 10, 1, time.Second), fixed(t, 10, 100*time.Second), slidingLog(t, 10, 100*time.Second)} {
			take(t, l, "k", rule, 10)
			unused := take(t, l, "k", rule, 1).RetryAfter
			for range 3 {
				canceled, end := context.WithCancel(ctx)
				time.AfterFunc(100*time.Millisecond, end)
				if err := waited(t, canceled, l, rule, 5, 100*time.Millisecond); !errors.Is(err, context.Canceled) {
					t.Errorf("%v: %v", rule, err)
				}
			}
			if got := take(t, l, "k", rule, 1).RetryAfter; got != unused-300*time.Millisecond {
				t.Errorf("%v: a wait of %v afterwards, want %v", rule, got, unused-300*time.Millisecond)
			}
			// A context that ends in the middle of the wait, though its
			// deadline was said to be later, is no different.
			parent, end := context.WithCancelCause(ctx)
			time.AfterFunc(time.Millisecond, func() { end(io.EOF) })
			child, stop := context.WithTimeout(parent, time.Hour)
			if err := waited(t, child, l, rule, 1, time.Millisecond); !errors.Is(err, context.Canceled) {
				t.Errorf("%v: %v", rule, err)
			}
			stop()
		}
	})
}

// When the handing back fails, both errors are told.
func TestWaitCannotGiveBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), funnel(t, 1, 1, time.Minute)
		take(t, l, "k", rule, 1)
		canceled, end := context.WithCancel(ctx)
		time.AfterFunc(time.Second, func() {
			b.mini.SetError("LOADING this is a test")
			end()
		})
		err := waited(t, canceled, l, rule, 1, time.Second)
		if _, reason := Classify(lastOf(err)); !errors.Is(err, context.Canceled) || reason != "loading" {
			t.Errorf("%v", err)
		}
		err = waited(t, ctx, l, rule, 1, 0)
		wantClass(t, err, ClassUnavailable, "loading")
	})
}

// lastOf returns the last of several errors that were joined.
func lastOf(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()[len(many.Unwrap())-1]
	}
	return err
}

// Nothing is asked of Redis where the answer is known.
func TestWaitAsksNothing(t *testing.T) {
	b := onMini(t)
	l := b.limiter()
	var none context.Context
	over, end := context.WithCancel(ctx)
	end()
	sent := b.mini.CommandCount()
	for _, rule := range callRules(t) {
		for _, c := range []struct {
			ctx  context.Context
			rule *limit.Rule
			n    int64
			want error
		}{
			{ctx, rule, 0, nil}, {none, rule, 0, nil}, {over, rule, 1, context.Canceled}, {over, rule, 0, context.Canceled},
			{over, rule, -1, limit.ErrInvalidN}, {none, rule, 11, limit.ErrTooMany}, {ctx, rule, math.MaxInt64, limit.ErrTooMany}, {over, rule.DryRun(), 1, context.Canceled},
		} {
			if err := l.WaitN(c.ctx, "k", c.rule, c.n); !errors.Is(err, c.want) {
				t.Errorf("%d of %v: %v, want %v", c.n, c.rule, err, c.want)
			}
		}
		var never *limit.WaitError
		if err := l.WaitN(none, "k", rule, 11); !errors.As(err, &never) || never.Need != limit.Never {
			t.Errorf("11 of %v: %v", rule, err)
		}
	}
	if n := b.mini.CommandCount() - sent; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// Many wait for a window: in no order, but never more than the limit at a time,
// and none for longer than it takes.
func TestWaitWindows(t *testing.T) {
	for _, rule := range []*limit.Rule{fixed(t, 3, time.Second), slidingLog(t, 3, time.Second), sliding(t, 3, time.Second, 1)} {
		inBubble(t, func(t *testing.T, b *backend) {
			l := b.limiter()
			var mu sync.Mutex
			var at []time.Duration
			var wg sync.WaitGroup
			start := time.Now()
			for range 12 {
				wg.Go(func() {
					if err := l.Wait(ctx, "k", rule); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(start))
				})
			}
			wg.Wait()
			for i := 3; i < len(at); i++ {
				// The bubble begins with the second, and so with a fixed window.
				if d := at[i] - at[i-3]; d < time.Second && arith.Of(rule).Kept == 0 {
					t.Errorf("%v: units at %v", rule, at)
				}
			}
			// They ask when there should be room, and not all the time.
			if n := b.mini.CommandCount(); n > 1500 {
				t.Errorf("%v: %d commands", rule, n)
			}
			if last := at[len(at)-1]; len(at) != 12 || last < 3*time.Second || last > 6*time.Second {
				t.Errorf("%v: units at %v", rule, at)
			}
		})
	}
}

// Whoever is let through by a funnel is so when it has room, not before, and the
// last one when all others have leaked; whoever is not has taken nothing.
func TestWaitNeitherEarlyNorLate(t *testing.T) {
	for seed := range uint64(10) {
		inBubble(t, func(t *testing.T, b *backend) {
			l, rule := b.limiter(), funnel(t, 5, 7, 3*time.Second)
			rng := rand.New(rand.NewPCG(21, seed))
			type pass struct {
				at time.Duration
				n  int64
			}
			var mu sync.Mutex
			var passed []pass
			var wg sync.WaitGroup
			start := time.Now()
			for range 60 {
				n, begin, left := 1+rng.Int64N(5), rng.Int64N(5_000), rng.Int64N(20_000)
				wg.Go(func() {
					time.Sleep(time.Duration(begin) * time.Millisecond)
					short, end := context.WithTimeout(ctx, time.Duration(left)*time.Millisecond)
					defer end()
					asked := time.Now()
					err := l.WaitN(short, "k", rule, n)
					var late *limit.WaitError
					switch {
					case err == nil:
						mu.Lock()
						defer mu.Unlock()
						passed = append(passed, pass{time.Since(start), n})
					case !errors.As(err, &late), time.Since(asked) != 0, late.Need <= time.Duration(left)*time.Millisecond:
						t.Errorf("%v after %v", err, time.Since(asked))
					}
				})
			}
			wg.Wait()
			m := newFunnelModel(5, 7, 3*time.Second)
			m.capacity.SetFrac64(5001, 1000) // the model counts whole µs, timers end in ns
			sum := int64(0)
			for _, p := range passed {
				if ok, _ := m.take(int64(p.at/time.Microsecond), p.n); !ok {
					t.Fatalf("seed %d: %d units at %v are too early: %v", seed, p.n, p.at, passed)
				}
				sum += p.n
			}
			last := passed[len(passed)-1].at
			if full := time.Duration(sum-5) * 3 * time.Second / 7; last > full+5*time.Second || sum < 30 {
				t.Errorf("seed %d: %d units, the last at %v", seed, sum, last)
			}
		})
	}
}
