package xrate

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Usual rates are what a person would write, so that a rule which a person has written counts alike.
func TestUsualFractions(t *testing.T) {
	const day = 24 * time.Hour
	for r, want := range map[rate.Limit]tokens{
		1:                         {refill: 1, per: time.Second},
		10:                        {refill: 10, per: time.Second},
		1e9:                       {refill: 1e9, per: time.Second},
		0.5:                       {refill: 1, per: 2 * time.Second},
		2.5:                       {refill: 5, per: 2 * time.Second},
		0.3:                       {refill: 3, per: 10 * time.Second},
		100.0 / 60:                {refill: 5, per: 3 * time.Second},
		rate.Every(7 * time.Hour): {refill: 1, per: 7 * time.Hour},
		rate.Every(90 * day):      {refill: 1, per: 90 * day},
		rate.Every(1):             {refill: 1e9, per: time.Second},
		rate.Every(time.Hour + 1): {refill: 1, per: time.Hour + 1},
		rate.Inf / 2:              {refill: arith.MaxUnits, per: 1},
	} {
		if refill, per, ok := fraction(float64(r)); !ok || refill != want.refill || per != want.per {
			// 2.5 a second may be 1 per 400 ms as well: what counts is the quotient, in small numbers.
			if !ok || refill > want.refill || float64(refill)*float64(want.per) != float64(want.refill)*float64(per) {
				t.Errorf("%v is %d per %v (%t), want %d per %v", r, refill, per, ok, want.refill, want.per)
			}
		}
	}
}

// checkFraction checks what holds for each number.
func checkFraction(t *testing.T, r float64) {
	t.Helper()
	refill, per, ok := fraction(r)
	if !ok {
		if r*arith.MaxWindow.Seconds() > 1+1e-9 {
			t.Fatalf("%v admits nothing", r)
		}
		return
	}
	if refill < 1 || refill > arith.MaxUnits || per < 1 || per > arith.MaxWindow || r*arith.MaxWindow.Seconds() < 1-1e-9 {
		t.Fatalf("%v is %d per %v", r, refill, per)
	}
	if r >= arith.MaxUnits*1e9 {
		return // more than a rule can say
	}
	want := new(big.Float).SetFloat64(r)
	got := new(big.Float).Quo(new(big.Float).SetInt64(refill), new(big.Float).SetFloat64(per.Seconds()))
	off, _ := new(big.Float).Quo(got.Sub(got, want), want).Float64()
	if math.Abs(off) > 1.01*closeEnough {
		t.Fatalf("%v is %d per %v, %v off", r, refill, per, off)
	}
}

func TestFractions(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		checkFraction(t, math.Exp(rng.Float64()*90-22)) // from one in 100 years to more than a rule can say
		checkFraction(t, math.Round(math.Exp(rng.Float64()*30)))
		checkFraction(t, 1/time.Duration(math.Exp(rng.Float64()*42)).Seconds())
		checkFraction(t, float64(rng.IntN(10_000))/float64(1+rng.IntN(10_000)))
	}
}

// Each setting makes a rule, however odd, and never one of more than was asked for.
func FuzzSetting(f *testing.F) {
	f.Add(10.0, 20, 0.0, 0)
	f.Add(math.Inf(1), math.MaxInt, math.NaN(), math.MinInt)
	f.Add(5e-324, 1, math.MaxFloat64, -1)
	f.Add(3.2e-10, 7, 1e25, math.MaxInt)
	f.Fuzz(func(t *testing.T, r1 float64, b1 int, r2 float64, b2 int) {
		s := &setting{tokens: initial}
		for _, c := range []struct {
			r float64
			b int
		}{{r1, b1}, {r2, b2}, {r1, b2}} {
			var err error
			if s, err = s.with("n", rate.Limit(c.r), c.b); err != nil {
				t.Fatalf("%v, %d: %v", c.r, c.b, err)
			}
			switch is := s.rule.Limit(); {
			case is > 0 && is > int64(c.b), is < 0:
				t.Errorf("%v, %d: the burst is %d", c.r, c.b, is)
			case !s.unlimited && !(c.r > 0) && is != 0:
				t.Errorf("%v, %d: a rate of nothing has a burst of %d", c.r, c.b, is)
			case s.unlimited != (c.r >= math.MaxFloat64):
				t.Errorf("%v: unlimited is %t", c.r, s.unlimited)
			}
			if !s.unlimited {
				checkFraction(t, c.r)
			}
			for _, res := range []limit.Result{{}, {Remaining: s.rule.Limit()}, {ResetAfter: arith.MaxWindow}, {Remaining: 1, ResetAfter: limit.Never}} {
				got := s.tokensAfter(arith.MaxWindow, res)
				if math.IsNaN(got) || got > float64(s.rule.Limit()) {
					t.Errorf("%v, %d: %v tokens", c.r, c.b, got)
				}
			}
		}
	})
}
