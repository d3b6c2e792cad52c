package hybrid

import "testing"

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
	if f.step > 50*ms || f.step < -50*ms { // the bound of the estimate before
		t.Errorf("a step of %d, and only our clock stood still", f.step)
	}
	step("Redis' clock was set back by 9 s", 400_300*ms, 400_302*ms, 403_301*ms, true, 3000*ms)
	if f.step != -9000*ms {
		t.Errorf("a step of %d, want 9 s back", f.step)
	}
}
