package remote

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// reserve asks, and ends the test unless the answer is as wanted.
func reserve(t testing.TB, l *Limiter, key string, rule *limit.Rule, n int64, ok bool, delay time.Duration) limit.Reservation {
	t.Helper()
	r, err := l.ReserveN(ctx, key, rule, n)
	if err != nil || r.OK() != ok {
		t.Fatalf("%d of %v: %+v, %v, want OK %v", n, rule, r, err, ok)
	}
	// A real server's clock goes on.
	if r.Delay() > delay || r.Delay() < delay-pace || r.Delay() < 0 {
		t.Fatalf("%d of %v: a delay of %v, want %v", n, rule, r.Delay(), delay)
	}
	if res := r.Result(); res.Allowed != (ok && r.Delay() == 0) || res.RetryAfter != r.Delay() || res.Limit != rule.Limit() || res.Source != limit.SourceRemote {
		t.Fatalf("%d of %v: the answer is %s, for a delay of %v", n, rule, show(res), r.Delay())
	}
	return r
}

// cancel hands back and ends the test on an error.
func cancel(t testing.TB, r limit.Reservation) {
	t.Helper()
	if err := r.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
}

// Units that are booked ahead keep everybody else behind them, until they are
// handed back.
func TestReserveFunnel(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, rule := b.limiter(), funnel(t, 10, 1, time.Hour)
		reserve(t, l, "k", rule, 10, true, 0)
		five := reserve(t, l, "k", rule, 5, true, 5*time.Hour)
		two := reserve(t, l, "k", rule, 2, true, 7*time.Hour)
		reserve(t, l, "k", rule, 0, true, 7*time.Hour)
		if res := take(t, l, "k", rule, 1); res.Allowed || res.RetryAfter > 8*time.Hour || res.RetryAfter < 8*time.Hour-pace {
			t.Errorf("behind the queue: %s", show(res))
		}
		before := b.dump()
		for _, n := range []int64{11, math.MaxInt64} {
			if r := reserve(t, l, "k", rule, n, false, limit.Never); r.Cancel(ctx) != nil {
				t.Errorf("%d: a cancel of nothing fails", n)
			}
		}
		if after := b.dump(); after != before {
			t.Errorf("11 of 10 left\n%safter\n%s", after, before)
		}
		for range 3 {
			cancel(t, five)
			reserve(t, l, "k", rule, 0, true, 7*time.Hour) // somebody waits behind
		}
		if back, err := l.Refund(ctx, "k", rule, 10); back != 0 || err != nil {
			t.Errorf("%d handed back with a queue behind, %v", back, err)
		}
		cancel(t, two)
		reserve(t, l, "k", rule, 0, true, 5*time.Hour)
		b.everyKeyExpires()
	})
}

// The queue ends at MaxWindow, and what does not find room in it is not booked.
func TestReserveIsBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		const year = 365 * 24 * time.Hour
		l, rule := b.limiter(), funnel(t, 1, 1, 60*year)
		reserve(t, l, "k", rule, 1, true, 0)
		reserve(t, l, "k", rule, 1, true, 60*year)
		for range 2 {
			r := reserve(t, l, "k", rule, 1, false, 120*year)
			cancel(t, r)
			if r, err := l.reserve(ctx, "k", rule, 1, limit.Never); err != nil || r.OK() {
				t.Errorf("for somebody who waits for ever: %+v, %v", r, err)
			}
		}
		var never *limit.WaitError
		if err := l.Wait(ctx, "k", rule); !errors.As(err, &never) || never.Need > 120*year {
			t.Errorf("a wait for ever: %v", err)
		}
		reserve(t, l, "k", rule, 0, true, 60*year)
		b.everyKeyExpires()
	})
}

// More units than the limit are never reserved. The answer says all the same what is left, as that of
// Take does.
func TestReserveTooMany(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		for _, rule := range []*limit.Rule{funnel(t, 5, 1, time.Hour), sliding(t, 5, time.Hour, 10)} {
			l := b.limiter()
			take(t, l, "k", rule, 2)
			r := reserve(t, l, "k", rule, 6, false, limit.Never)
			is, want := r.Result(), take(t, l, "k", rule, 6)
			if is.Remaining != 3 || want.Remaining != 3 || is.ResetAfter < want.ResetAfter || is.ResetAfter > want.ResetAfter+pace {
				t.Errorf("%v: %s, Take says %s", rule, show(is), show(want))
			}
			if res := take(t, l, "k", rule, 3); !res.Allowed {
				t.Errorf("%v: afterwards %s", rule, show(res))
			}
		}
	})
}

// What cannot be used within the bound is not booked; at the bound it is.
func TestReserveWithin(t *testing.T) {
	b := onMini(t)
	l, rule := b.limiter(), funnel(t, 7, 7, 3*time.Second)
	take(t, l, "k", rule, 7)
	// Two units cost 6/7 s, which is no whole number of nanoseconds.
	const need = 6*time.Second/7 + 1
	for _, c := range []struct {
		most time.Duration
		ok   bool
	}{{0, false}, {need - 1, false}, {need, true}} {
		before := b.dump()
		r, err := l.reserve(ctx, "k", rule, 2, c.most)
		if err != nil || r.OK() != c.ok || r.Delay() != need || (b.dump() == before) == c.ok {
			t.Errorf("within %v: %+v, %v, want %v after %v", c.most, r, err, c.ok, need)
		}
	}
}

// Windows and logs know no future: admitted now, or when to come back.
func TestReserveWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, rule := range callRules(t)[1:] {
			r := reserve(t, l, "k", rule, 7, true, 0)
			refused, err := l.ReserveN(ctx, "k", rule, 4)
			res := take(t, l, "k", rule, 4)
			if d := refused.Delay() - res.RetryAfter; err != nil || refused.OK() || d < 0 || d > pace || remains(t, l, "k", rule) != 3 {
				t.Errorf("%v: %+v, %v, %s", rule, refused, err, show(res))
			}
			cancel(t, refused)
			reserve(t, l, "k", rule, 11, false, limit.Never)
			cancel(t, r)
			cancel(t, r)
			if got := remains(t, l, "k", rule); got != 10 {
				t.Errorf("%v: %d remain after a cancel", rule, got)
			}
		}
	})
}

// meeting is a context that lets nobody go on who asks it for the first time
// until all have done so.
type meeting struct {
	context.Context
	all  *sync.WaitGroup
	once *sync.Once
}

func (m meeting) Err() error {
	m.once.Do(func() {
		m.all.Done()
		m.all.Wait()
	})
	return m.Context.Err()
}

// Handed back once, by however many at a time: here all of them have found that
// it is still to be done.
func TestCancelOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, rule := range callRules(t) {
			take(t, l, "k", rule, 5)
			r := reserve(t, l, "k", rule, 1, true, 0)
			var wg, all sync.WaitGroup
			all.Add(16)
			for range 16 {
				wg.Go(func() {
					if err := r.Cancel(meeting{ctx, &all, new(sync.Once)}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := remains(t, l, "k", rule); got != 5 {
				t.Errorf("%v: %d remain, want 5", rule, got)
			}
		}
	})
}

// Whoever cancels late does not hand back what others have taken since: the key
// holds what it would if the reservation had never been made.
func TestCancelLate(t *testing.T) {
	for _, rule := range []*limit.Rule{
		funnel(t, 10, 1, time.Second), fixed(t, 10, 3*time.Second), sliding(t, 10, 3*time.Second, 3), slidingLog(t, 10, 3*time.Second),
	} {
		b := onMini(t)
		l := b.limiter()
		r := reserve(t, l, "k", rule, 5, true, 0)
		half := reserve(t, l, "half", rule, 5, true, 0)
		b.advance(1500 * time.Millisecond)
		cancel(t, half)
		b.advance(2500 * time.Millisecond)
		take(t, l, "k", rule, 4)
		take(t, l, "half", rule, 4)
		cancel(t, r)
		for _, key := range []string{"k", "half"} {
			if got := remains(t, l, key, rule); got != 6 {
				t.Errorf("%v, %s: %d remain, want 6", rule, key, got)
			}
		}
	}
}

func TestReserveDryRun(t *testing.T) {
	forCallRules(t, func(t *testing.T, _ *backend, l *Limiter, rule *limit.Rule) {
		r := reserve(t, l, "k", rule.DryRun(), 7, true, 0)
		for _, n := range []int64{4, 11, math.MaxInt64} {
			would := reserve(t, l, "k", rule.DryRun(), n, true, 0)
			cancel(t, would)
			if got := remains(t, l, "k", rule); got != 3 {
				t.Fatalf("%d: %d remain, want 3", n, got)
			}
		}
		cancel(t, r)
		if got := remains(t, l, "k", rule); got != 10 {
			t.Errorf("%d remain, want 10", got)
		}
	})
}

func TestReserveErrors(t *testing.T) {
	b := onReal(t)
	l, rule := b.limiter(), funnel(t, 10, 1, time.Hour)
	none, err := l.Reserve(ctx, "k", nil)
	if !errors.Is(err, limit.ErrNilRule) || none.OK() || none.Delay() != limit.Never || none.Result() != (limit.Result{RetryAfter: limit.Never, Source: limit.SourceInvalid}) || none.Cancel(ctx) != nil {
		t.Error("reserved without a rule")
	}
	for _, answer := range []any{nil, []any{"1", "5", "1", "0"}, []any{"1", "5", "1", "0", "0", "0"}, []any{"1", "5", "2", "0", "0"}} {
		if r, err := b.lying(answer).Reserve(ctx, "k", rule); !errors.Is(err, ErrBadReply) || r.OK() {
			t.Errorf("%v: %+v, %v", answer, r, err)
		}
	}
	r := reserve(t, l, "k", rule, 3, true, 0)
	over, end := context.WithCancel(ctx)
	end()
	if err := r.Cancel(over); !errors.Is(err, context.Canceled) || remains(t, l, "k", rule) != 7 {
		t.Errorf("cancelled without time for it: %v", err)
	}
	cancel(t, r)
	if err := r.Cancel(over); err != nil {
		t.Errorf("once more, when it is done: %v", err)
	}
	if got := remains(t, l, "k", rule); got != 10 {
		t.Errorf("then with time: %d remain", got)
	}
	r = reserve(t, l, "k", rule, 3, true, 0)
	b.real.Kill()
	if err := r.Cancel(ctx); err == nil {
		t.Error("a cancel without Redis went well")
	}
	if none, err := l.Reserve(ctx, "k", rule); err == nil || none.OK() || none.Result().Source != limit.SourceRemote || none.Cancel(ctx) != nil {
		t.Errorf("reserved without Redis: %+v, %v", none, err)
	}
	if err := r.Cancel(ctx); err != nil {
		t.Errorf("a second one asked again: %v", err)
	}
	each(t, l, writes, "k", rule, 1, func(err error) bool { class, _ := Classify(err); return class == ClassUnavailable })
}

// What a reset, or a Set, has cleared is not handed back: it would come off what
// others have used since.
func TestCancelAfterReset(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for _, rule := range callRules(t) {
			for _, used := range []int64{0, 4} {
				r := reserve(t, l, "k", rule, 5, true, 0)
				b.pass()
				if err := l.Set(ctx, "k", rule, used); err != nil {
					t.Fatal(err)
				}
				b.pass()
				again := reserve(t, l, "k", rule, 2, true, 0)
				take(t, l, "k", rule, 3)
				cancel(t, r)
				if got := remains(t, l, "k", rule); got != 5-used {
					t.Errorf("%v: %d remain, want %d", rule, got, 5-used)
				}
				b.pass()
				cancel(t, again) // made since
				if got := remains(t, l, "k", rule); got != 7-used {
					t.Errorf("%v: %d remain, want %d", rule, got, 7-used)
				}
				if err := l.Reset(ctx, "k", rule); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
