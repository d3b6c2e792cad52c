package xrate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/compat/xrate"
)

// pair is a rate.Limiter and one of ours, which are asked the same at the same times.
type pair struct {
	t       *testing.T
	clock   *clock.Manual
	theirs  *rate.Limiter
	ours    *xrate.Limiter
	calls   float64
	rounded float64 // changes of the rate, and reservations that were cancelled
	most    float64 // the largest burst, or number of tokens that were reserved ahead
	fast    float64 // the highest rate
	begun   time.Time
	last    []string // the last calls, for failures
}

func newPair(t *testing.T, r rate.Limit, burst int) *pair {
	l, c := manual(t, r, burst)
	p := &pair{t: t, clock: c, theirs: rate.NewLimiter(r, burst), ours: l, begun: at(c)}
	p.bound()
	return p
}

func (p *pair) now() time.Time { return at(p.clock) }

// bound notes the numbers that bound how far the two may be apart.
func (p *pair) bound() {
	p.most = max(p.most, float64(p.theirs.Burst()), -p.theirs.TokensAt(p.now()))
	p.fast = max(p.fast, float64(p.theirs.Limit()))
}

// tolerance returns by how many tokens the two may differ:
//
//   - floating-point numbers lose up to four times 2⁻⁵³ of the largest number of tokens with each call;
//   - our rate, as a fraction, is off by up to 10⁻¹² of what has come since the beginning;
//   - our answers are rounded up to a nanosecond, and so is what was used when the rate changes: at the highest
//     rate. They round the times of a reservation that is cancelled.
func (p *pair) tolerance() float64 {
	return p.calls*p.most*0x1p-51 + p.now().Sub(p.begun).Seconds()*p.fast*1e-12 + (p.rounded+1)*p.fast*2e-9
}

func (p *pair) failf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\n%v", fmt.Sprintf(format, args...), p.last)
}

func (p *pair) did(format string, args ...any) {
	p.calls++
	p.bound()
	p.last = append(p.last, fmt.Sprintf(format, args...))
	if len(p.last) > 12 {
		p.last = p.last[1:]
	}
}

// undecided reports whether the answer for n tokens may go either way, because that many are there but for the
// tolerance.
func (p *pair) undecided(n int) bool {
	return math.Abs(p.theirs.TokensAt(p.now())-float64(n)) <= p.tolerance()
}

func (p *pair) allow(n int) (allowed bool) {
	a, b := p.theirs.AllowN(p.now(), n), p.ours.AllowN(p.now(), n)
	if a != b {
		p.failf("%d at %v: they %t, we %t", n, p.now().Sub(p.begun), a, b)
	}
	p.did("allow %d: %t", n, a)
	return a
}

func (p *pair) reserve(n int) (a *rate.Reservation, b *xrate.Reservation) {
	a, b = p.theirs.ReserveN(p.now(), n), p.ours.ReserveN(p.now(), n)
	x, y := a.DelayFrom(p.now()), b.DelayFrom(p.now())
	may := time.Duration(p.tolerance()/float64(p.theirs.Limit())*1e9) + 2
	if a.OK() != b.OK() || a.OK() && (x-y).Abs() > may || !a.OK() && x != y {
		p.failf("%d are reserved: %t, %t for %v, %v (%v)", n, a.OK(), b.OK(), x, y, may)
	}
	p.did("reserve %d: %v", n, x)
	return a, b
}

func (p *pair) compare() {
	for _, later := range []time.Duration{0, time.Millisecond, time.Second} {
		a, b := p.theirs.TokensAt(p.now().Add(later)), p.ours.TokensAt(p.now().Add(later))
		if math.Abs(a-b) > p.tolerance()*2 {
			p.failf("%v later: %v tokens, %v (%v)", later, a, b, p.tolerance())
		}
	}
}

// Random calls at random times have the same answers, for rates from one in an hour to ten million a second.
// What differs on purpose is left out: see TestDifferences.
func TestAgainstXTimeRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rates := []rate.Limit{1, 10, 2.5, 0.3, 1.0 / 3, math.Pi, 997.123, 1e4, 1e7, rate.Every(time.Hour), rate.Every(7 * time.Millisecond), rate.Every(333333333)}
	var sum counts
	for i := range 400 {
		r := rates[i%len(rates)]
		if i >= 2*len(rates) {
			r = rate.Limit(math.Exp(rng.Float64()*20 - 8)) // 1 in 50 minutes to 160,000 a second
		}
		p := newPair(t, r, 1+rng.IntN(1+rng.IntN(100)))
		n := p.run(rng, 300)
		sum.allowed += n.allowed
		sum.refused += n.refused
		sum.ahead += n.ahead
		sum.cancelled += n.cancelled
		sum.skipped += n.skipped
	}
	t.Logf("%+v", sum)
	if sum.allowed < 1000 || sum.refused < 1000 || sum.ahead < 1000 || sum.cancelled < 300 || sum.skipped > sum.allowed {
		t.Errorf("the calls are of few kinds: %+v", sum)
	}
}

// counts is how often the calls ended how.
type counts struct{ allowed, refused, ahead, cancelled, skipped int }

// run makes so many calls.
func (p *pair) run(rng *rand.Rand, calls int) (sum counts) {
	each := float64(time.Second) / float64(p.theirs.Limit()) // ns for a token
	for range calls {
		if rng.IntN(4) > 0 {
			p.clock.Advance(time.Duration(rng.ExpFloat64() * each * float64(p.theirs.Burst()) / 2))
		}
		n := 1 + rng.IntN(p.theirs.Burst())
		if rng.IntN(20) == 0 {
			n = p.theirs.Burst() + rng.IntN(2) // all, or more than there can be
		}
		switch rng.IntN(10) {
		case 0, 1:
			a, b := p.reserve(n)
			if a.DelayFrom(p.now()) > 0 && a.OK() {
				sum.ahead++
			}
			// Only the last one: nobody has reserved behind it. Not at the very time of its turn.
			if rng.IntN(2) == 0 && a.OK() && b.OK() {
				p.clock.Advance(time.Duration(rng.ExpFloat64() * each / 2))
				if left := a.DelayFrom(p.now()); left > time.Microsecond || left == 0 && b.DelayFrom(p.now()) == 0 && !p.atTurn(a, b) {
					a.CancelAt(p.now())
					b.CancelAt(p.now())
					p.did("cancel")
					p.rounded++
					sum.cancelled++
				}
			}
		case 2:
			// Not while tokens are reserved ahead: at a higher rate the next reservation would have its turn before
			// those, so that it cannot be handed back.
			if p.theirs.TokensAt(p.now()) < 0 {
				continue
			}
			r := p.theirs.Limit() * rate.Limit(0.5+rng.Float64())
			p.theirs.SetLimitAt(p.now(), r)
			p.ours.SetLimit(r)
			p.rounded++
			p.did("limit %v", r)
		default:
			if p.undecided(n) {
				sum.skipped++
				continue
			}
			if p.allow(n) {
				sum.allowed++
			} else {
				sum.refused++
			}
		}
		p.compare()
	}
	return sum
}

// atTurn reports whether it is the turn of a reservation, within the tolerance: then one of the two may take
// it for used.
func (p *pair) atTurn(a *rate.Reservation, b *xrate.Reservation) bool {
	early := p.now().Add(-time.Microsecond)
	return a.DelayFrom(early) > 0 || b.DelayFrom(early) > 0
}

// What the table of docs/migrate/x-time-rate.md says differs, unless tests of our side alone show it.
func TestDifferences(t *testing.T) {
	t.Run("cancel before others", func(t *testing.T) {
		p := newPair(t, 1, 1)
		p.allow(1)
		a1, b1 := p.reserve(1)
		a2, b2 := p.reserve(1)
		a1.CancelAt(p.now())
		b1.CancelAt(p.now())
		p.compare() // nobody moves up
		a2.CancelAt(p.now())
		b2.CancelAt(p.now())
		if x, y := p.theirs.TokensAt(p.now()), p.ours.Tokens(); x != -1 || y != 0 {
			t.Errorf("%v, %v tokens", x, y)
		}
	})
	t.Run("nothing while reserved ahead", func(t *testing.T) {
		p := newPair(t, 1, 1)
		p.allow(1)
		p.reserve(1)
		if a, b := p.theirs.AllowN(p.now(), 0), p.ours.AllowN(p.now(), 0); a || !b {
			t.Errorf("%t, %t", a, b)
		}
	})
}
