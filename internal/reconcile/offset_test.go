package reconcile

import (
	"math/rand/v2"
	"testing"
)

// An exchange says between which bounds the offset lies. One that took long
// says less than what is known already.
func TestOffsetFilter(t *testing.T) {
	const ms = 1_000_000
	var f offsetFilter
	var lag int64
	step := func(what string, sent, recv, server int64, changed bool, want int64) {
		t.Helper()
		if got := f.sample(sent, recv, server, lag); got != changed || f.ns != want {
			t.Errorf("%s: changed %v, offset %d; want %v, %d", what, got, f.ns, changed, want)
		}
	}
	step("the first", 0, 2*ms, 501*ms, true, 500*ms)
	step("a slower one, whose stamp is late", 10*ms, 110*ms, 609*ms, false, 500*ms)
	step("a quicker one", 200*ms, 201*ms, 700*ms+600_000, true, 500*ms+100_000)
	step("one that ends before it begins", 300*ms, 299*ms, 0, false, 500*ms+100_000)
	step("one of the past that contradicts", 150*ms, 310*ms, 10_000*ms, false, 500*ms+100_000)
	step("a new one that contradicts: a clock was set", 320*ms, 330*ms, 5325*ms, true, 5000*ms)
	step("a slow one, when the estimate is old", 400_000*ms, 400_100*ms, 405_060*ms, true, 5010*ms)
	if f.step != 0 {
		t.Errorf("a step of %d, and no clock was set", f.step)
	}
	lag = 7000 * ms
	step("our clock stood still for 7 s", 400_200*ms, 400_202*ms, 412_201*ms, true, 12_000*ms)
	if f.step != 0 {
		t.Errorf("a step of %d, and only our clock stood still", f.step)
	}
	step("Redis' clock was set back by 9 s", 400_300*ms, 400_302*ms, 403_301*ms, true, 3000*ms)
	// Each of the two exchanges took 2 ms and is off by at most half of it and 1 µs, and
	// 100 ms have passed since.
	if want := int64(-9000*ms - 2*(ms+1000) - 100*ms/offsetDrift); f.step != want {
		t.Errorf("a step of %d, want 9 s back and the errors, %d", f.step, want)
	}
}

// A clock is set back and put right. The steps that are noted are never less than what
// was done, however the exchanges that find them are delayed.
//
// Fault 78: answers from before a clock is put right are no sign of lost data.
func TestStepIsNeverTooSmall(t *testing.T) {
	const second = 1_000_000_000
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		var f offsetFilter
		now, back := int64(0), -(1+rng.Int64N(3600))*second
		for _, set := range []int64{0, back, 0} {
			was := f.ns
			there, here := rng.Int64N(second/4), rng.Int64N(second/4)
			f.sample(now, now+there+here, now+there+set, 0)
			if moved := max(f.ns-was, was-f.ns); f.step != 0 && max(f.step, -f.step) < moved {
				t.Fatalf("a step of %d for an offset that moved by %d", f.step, moved)
			}
			switch {
			case set == back && f.step > back:
				t.Fatalf("a step of %d, and the clock was set back by %d", f.step, back)
			case set == 0 && now > 0 && f.step < -back:
				t.Fatalf("a step of %d, and the clock was put right by %d", f.step, -back)
			}
			now += there + here + rng.Int64N(second)
		}
	}
}
