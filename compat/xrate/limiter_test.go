package xrate_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/compat/xrate"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// limiter is all methods of a rate.Limiter whose types are not its own.
type limiter interface {
	Allow() bool
	AllowN(t time.Time, n int) bool
	Burst() int
	Limit() rate.Limit
	SetBurst(burst int)
	SetBurstAt(t time.Time, burst int)
	SetLimit(r rate.Limit)
	SetLimitAt(t time.Time, r rate.Limit)
	Tokens() float64
	TokensAt(t time.Time) float64
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int) error
}

// reservation is all methods of a rate.Reservation.
type reservation interface {
	OK() bool
	Delay() time.Duration
	DelayFrom(t time.Time) time.Duration
	Cancel()
	CancelAt(t time.Time)
}

var (
	_ limiter     = (*rate.Limiter)(nil)
	_ limiter     = (*xrate.Limiter)(nil)
	_ reservation = (*rate.Reservation)(nil)
	_ reservation = (*xrate.Reservation)(nil)
)

// Limits that are none, or cannot be said as a rule, do not panic, and neither do the calls.
func TestOddLimits(t *testing.T) {
	const century = 100 * 365 * 24 * 3600 // seconds
	const largest = min(math.MaxInt, arith.MaxUnits)
	for name, c := range map[string]struct {
		r     rate.Limit
		burst int
		once  int     // of 50 events at once, so many are admitted
		most  int     // as many at once as can be admitted, 0: as once, -1: no limit
		left  float64 // tokens before
	}{
		"usual":                       {10, 20, 20, 0, 20},
		"unlimited":                   {rate.Inf, 0, 50, -1, 0},
		"unlimited, with a burst":     {rate.Inf, 7, 50, -1, 7},
		"no burst":                    {10, 0, 0, 0, 0},
		"a burst below 0":             {10, -3, 0, 0, 0},
		"no rate":                     {0, 20, 0, 0, 0},
		"a rate below 0":              {-1, 20, 0, 0, 0},
		"no number":                   {rate.Limit(math.NaN()), 20, 0, 0, 0},
		"one a day":                   {rate.Every(24 * time.Hour), 2, 2, 0, 2},
		"less than one in 100 years":  {0.99 / century, 2, 0, 0, 0},
		"one in 50 years":             {2.0 / century, 2, 2, 0, 2},
		"fills in more than 100 year": {5.0 / century, 20, 5, 0, 5},
		"the smallest number":         {rate.Limit(math.SmallestNonzeroFloat64), 20, 0, 0, 0},
		"the largest finite rate":     {rate.Inf / 2, 20, 20, 0, 20},
		"the largest burst":           {1e9, math.MaxInt, 50, largest, largest},
	} {
		l, clk := manual(t, c.r, c.burst)
		if got := l.Limit(); got != c.r && !(math.IsNaN(float64(got)) && math.IsNaN(float64(c.r))) || l.Burst() != c.burst {
			t.Errorf("%s: the limit is %v, %v", name, got, l.Burst())
		}
		if got := l.Tokens(); got != c.left {
			t.Errorf("%s: %v tokens, want %v", name, got, c.left)
		}
		if !l.AllowN(at(clk), 0) {
			t.Errorf("%s: nothing is refused", name)
		}
		if l.AllowN(at(clk), -1) || l.ReserveN(at(clk), -1).OK() || !errors.Is(l.WaitN(t.Context(), -1), limit.ErrInvalidN) {
			t.Errorf("%s: -1 event is admitted", name)
		}
		most := c.most
		if most == 0 {
			most = c.once
		}
		if most >= 0 && most < math.MaxInt {
			// One more than the bucket holds: no waiting helps.
			r := l.ReserveN(at(clk), most+1)
			if r.OK() || r.Delay() != rate.InfDuration || r.DelayFrom(at(clk)) != rate.InfDuration {
				t.Errorf("%s: %d events are reserved", name, most+1)
			}
			r.Cancel()
			if err := l.WaitN(t.Context(), most+1); !errors.Is(err, limit.ErrTooMany) {
				t.Errorf("%s: %d events: %v", name, most+1, err)
			}
			if l.AllowN(at(clk), most+1) {
				t.Errorf("%s: %d events are admitted", name, most+1)
			}
		}
		if got := admitted(l, 50); got != c.once {
			t.Errorf("%s: %d of 50 are admitted, want %d", name, got, c.once)
		}
		if c.most == -1 && (!l.AllowN(at(clk), math.MaxInt) || l.WaitN(t.Context(), math.MaxInt) != nil || l.ReserveN(at(clk), math.MaxInt).Delay() != 0) {
			t.Errorf("%s: not unlimited", name)
		}
	}
}

func TestNew(t *testing.T) {
	lim := alone(t, nil)
	for name, err := range map[string]error{
		"no limiter":            second(xrate.New(nil, "k", "n", 1, 1, xrate.Options{})),
		"no name":               second(xrate.New(lim, "k", "", 1, 1, xrate.Options{})),
		"long name":             second(xrate.New(lim, "k", strings.Repeat("n", 257), 1, 1, xrate.Options{})),
		"no name, and no limit": second(xrate.New(lim, "k", "", rate.Inf, 1, xrate.Options{})),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "xrate: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := xrate.New(lim, "", "n", 1, 1, xrate.Options{}); err != nil {
		t.Error(err)
	}
}

func second(_ *xrate.Limiter, err error) error { return err }

// A nil and a zero Limiter refuse, and do not panic.
func TestZero(t *testing.T) {
	for name, l := range map[string]*xrate.Limiter{"nil": nil, "zero": new(xrate.Limiter)} {
		now := time.Now()
		l.SetLimit(10)
		l.SetLimitAt(now, rate.Inf)
		l.SetBurst(10)
		l.SetBurstAt(now, 10)
		if l.Allow() || l.AllowN(now, 0) || l.Reserve().OK() || l.ReserveN(now, 1).OK() || l.Limit() != 0 || l.Burst() != 0 ||
			l.Tokens() != 0 || l.TokensAt(now) != 0 || l.Skewed() != 0 {
			t.Errorf("%s: something is admitted", name)
		}
		for _, err := range []error{l.Wait(t.Context()), l.WaitN(t.Context(), 0)} {
			if !errors.Is(err, limit.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, r := range map[string]*xrate.Reservation{"nil": nil, "zero": {}} {
		r.Cancel()
		r.CancelAt(time.Now())
		if r.OK() || r.Delay() != rate.InfDuration || r.DelayFrom(time.Now()) != rate.InfDuration {
			t.Errorf("%s: a reservation is OK", name)
		}
	}
	var none *local.Limiter // as of a constructor that has failed
	if l := over(t, none, 1, 1, nil); l.Allow() || l.Reserve().OK() || l.Wait(t.Context()) == nil {
		t.Error("a nil limiter below admits")
	}
}

// A time that is not the present one is denied, and counted, in both directions and at the boundary.
func TestSkewedTimes(t *testing.T) {
	l, clk := manual(t, 10, 100)
	now := at(clk)
	for _, good := range []time.Duration{0, time.Second, -time.Second, 999 * time.Millisecond} {
		if !l.AllowN(now.Add(good), 1) || !l.ReserveN(now.Add(good), 1).OK() {
			t.Errorf("%v off, and denied", good)
		}
	}
	if l.Skewed() != 0 {
		t.Errorf("%d skewed", l.Skewed())
	}
	before := l.Tokens()
	bad := []time.Time{now.Add(time.Second + 1), now.Add(-time.Second - 1), {}, time.Unix(math.MaxInt32, 0), time.Unix(1<<62, 0), time.Unix(-1<<62, 0), now.Add(math.MaxInt64)}
	for i, b := range bad {
		if l.AllowN(b, 1) || l.AllowN(b, 0) || l.ReserveN(b, 1).OK() {
			t.Errorf("%v is admitted", b)
		}
		if got, want := l.Skewed(), uint64(3*(i+1)); got != want {
			t.Errorf("%v: %d skewed, want %d", b, got, want)
		}
	}
	if got := l.Tokens(); got != before {
		t.Errorf("denied calls took %v tokens", before-got)
	}
	l.SetLimit(rate.Inf) // nothing depends on the time
	if !l.AllowN(time.Time{}, 1) || !l.ReserveN(time.Time{}, 1).OK() || l.Skewed() != uint64(3*len(bad)) {
		t.Error("unlimited, and denied")
	}
}

// The clock of the system is compared by its monotonic reading, and without one by the wall clock.
func TestSystemClock(t *testing.T) {
	coarse := clock.NewCoarse(time.Millisecond)
	defer coarse.Stop()
	for name, c := range map[string]clock.Clock{"none": nil, "system": clock.System{}, "coarse": coarse} {
		l := over(t, alone(t, c), 10, 100, c)
		now := time.Now()
		if !l.AllowN(now, 1) || !l.AllowN(now.Round(0), 1) || !l.AllowN(now.In(time.FixedZone("", 3600)), 1) {
			t.Errorf("%s: the present is denied", name)
		}
		if l.AllowN(now.Add(-time.Hour), 1) || l.AllowN(now.Round(0).Add(time.Hour), 1) || l.Skewed() != 2 {
			t.Errorf("%s: another time is admitted", name)
		}
		// The pattern of programs that keep the time: a reservation that can be used at once has no delay.
		if r := l.ReserveN(now, 1); r.DelayFrom(now) != 0 || r.Delay() != 0 {
			t.Errorf("%s: a delay of %v, %v", name, r.DelayFrom(now), r.Delay())
		}
	}
}

// The delay counts down, and a reservation ahead has the time of its turn.
func TestReservation(t *testing.T) {
	l, clk := manual(t, 10, 2)
	l.ReserveN(at(clk), 2)
	r := l.Reserve()
	if !r.OK() || r.Delay() != 100*time.Millisecond || l.Tokens() != -1 {
		t.Errorf("%v, %v tokens", r.Delay(), l.Tokens())
	}
	clk.Advance(30 * time.Millisecond)
	if r.Delay() != 70*time.Millisecond || r.DelayFrom(at(clk).Add(-10*time.Millisecond)) != 80*time.Millisecond || r.DelayFrom(at(clk).Add(time.Hour)) != 0 {
		t.Errorf("%v", r.Delay())
	}
	// A time that is early by less than a second changes nothing about the turn.
	early := l.ReserveN(at(clk).Add(-500*time.Millisecond), 1)
	if got := early.Delay(); got != 170*time.Millisecond {
		t.Errorf("%v", got)
	}
	early.Cancel()
	r.Cancel()
	r.Cancel()
	if got := l.Tokens(); math.Abs(got-0.3) > 1e-6 {
		t.Errorf("canceled: %v tokens", got)
	}
}

// What can have been used is not handed back.
func TestCancelTooLate(t *testing.T) {
	l, clk := manual(t, 10, 2)
	r := l.ReserveN(at(clk), 2)
	clk.Advance(time.Millisecond)
	r.Cancel()
	if got := l.Tokens(); got > 0.1 {
		t.Errorf("%v tokens", got)
	}
	clk.Advance(time.Minute)
	r = l.ReserveN(at(clk), 2) // at this very time they may be unused
	r.CancelAt(at(clk))
	if got := l.Tokens(); got != 2 {
		t.Errorf("%v tokens", got)
	}
	// With a wrong time that of the clock counts: the turn has come, though not by the caller's time.
	r = l.ReserveN(at(clk), 2)
	clk.Advance(time.Millisecond)
	r.CancelAt(at(clk).Add(-time.Hour))
	if got := l.Tokens(); got > 0.1 || l.Skewed() != 1 {
		t.Errorf("%v tokens, %d skewed", got, l.Skewed())
	}
	// And the other way round: it has not come, though by the caller's time it has.
	r = l.ReserveN(at(clk), 2)
	r.CancelAt(at(clk).Add(time.Hour))
	if got := l.Tokens(); got < 0 || l.Skewed() != 2 {
		t.Errorf("%v tokens, %d skewed", got, l.Skewed())
	}
}

func TestSet(t *testing.T) {
	l, clk := manual(t, 1, 10)
	l.AllowN(at(clk), 4)
	for _, c := range []struct {
		set  func()
		left float64
	}{
		{func() { l.SetBurst(5) }, 1},
		{func() { l.SetBurstAt(time.Time{}, 20) }, 16},
		{func() { l.SetLimit(5) }, 16},
		{func() { l.SetLimitAt(time.Time{}, 0) }, 0},
		{func() { l.SetLimit(rate.Inf) }, 20},
		{func() { l.SetLimit(0.5) }, 16},
		{func() { l.SetBurst(-1) }, 0},
		{func() { l.SetBurst(10) }, 6},
	} {
		if c.set(); math.Abs(l.Tokens()-c.left) > 1e-6 {
			t.Errorf("%v, %v: %v tokens, want %v", l.Limit(), l.Burst(), l.Tokens(), c.left)
		}
	}
	// A second later, by the rate of now.
	now := at(clk)
	if got := l.TokensAt(now.Add(time.Second)); math.Abs(got-6.5) > 1e-6 {
		t.Errorf("%v tokens", got)
	}
	if got := l.TokensAt(now.Add(time.Hour)); got != 10 {
		t.Errorf("%v tokens", got)
	}
	if a, b := l.TokensAt(now.Add(-time.Hour)), l.TokensAt(time.Time{}); a != l.Tokens() || b != a {
		t.Errorf("in the past: %v, %v tokens", a, b)
	}
}

// Whole tokens are whole, although a third of a second is no whole number of nanoseconds.
func TestWholeTokens(t *testing.T) {
	l, _ := manual(t, 3, 10)
	for want := 9.0; l.Allow(); want-- {
		if got := l.Tokens(); got > want+1e-6 || int(got) != int(want) {
			t.Errorf("%v tokens, want %v", got, want)
		}
	}
}

// While the rate is 0 the bucket goes on as before: a pause gives nothing back, and takes nothing.
func TestPause(t *testing.T) {
	l, clk := manual(t, 3, 6)
	admitted(l, 6)
	for range 100 {
		l.SetLimit(0)
		admitted(l, 5)
		l.SetLimit(3)
	}
	clk.Advance(time.Second)
	if got := admitted(l, 10); got != 3 {
		t.Errorf("%d are admitted", got)
	}
}

// Many goroutines use it while others change it: never more than the largest burst and what comes.
func TestConcurrent(t *testing.T) {
	l, clk := manual(t, 1000, 100)
	var got atomic.Int64
	var done sync.WaitGroup
	for i := range 8 {
		done.Go(func() {
			for j := range 5000 {
				switch now := at(clk); {
				case i == 0: // nobody else does
					if l.SetLimit(rate.Limit(1000 + j%2)); l.Limit() != rate.Limit(1000+j%2) {
						t.Errorf("a change of the rate is lost")
					}
				case i == 1:
					if l.SetBurst(100 - j%50); l.Burst() != 100-j%50 {
						t.Errorf("a change of the burst is lost")
					}
				case i == 2:
					if r := l.ReserveN(now, 1); r.OK() {
						r.CancelAt(now)
						r.Cancel()
						_, _ = r.Delay(), l.Tokens()
					}
				case l.AllowN(now, 1):
					got.Add(1)
				}
			}
		})
	}
	done.Wait()
	if n := got.Load(); n > 100 || n < 1 {
		t.Errorf("%d were admitted while the clock stood still", n)
	}
	if l.Limit() != 1001 || l.Burst() != 51 {
		t.Errorf("a change is lost: %v, %v", l.Limit(), l.Burst())
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := over(t, alone(t, nil), 10, 2, nil)
		begun := time.Now()
		for i := range 6 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(begun), time.Duration(max(i-1, 0))*100*time.Millisecond; (got - want).Abs() > time.Microsecond {
				t.Errorf("%d waited for %v, want %v", i, got, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begun = time.Now()
		if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if late, ok := errors.AsType[*limit.WaitError](l.Wait(ctx)); !ok || late.Need <= 0 {
			t.Errorf("%+v", late)
		}
		// One that is given up takes nothing.
		soon, stop := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, stop)
		if err := l.Wait(soon); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := l.Wait(t.Context()); err != nil || (time.Since(begun)-100*time.Millisecond).Abs() > time.Microsecond {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		l.SetLimit(rate.Inf)
		if err := l.Wait(soon); !errors.Is(err, context.Canceled) {
			t.Errorf("unlimited, and the context has ended: %v", err)
		}
		l.SetLimit(0) // at once, although there is no deadline
		if err := l.Wait(t.Context()); !errors.Is(err, limit.ErrTooMany) {
			t.Error(err)
		}
	})
}
