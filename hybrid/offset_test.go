package hybrid

import "testing"

// An exchange says between which bounds the offset lies. One that took long
// says less than what is known already.
func TestOffsetFilter(t *testing.T) {
	const ms = 1_000_000
	var f offsetFilter
	step := func(what string, sent, recv, server int64, changed bool, want int64) {
		t.Helper()
		if got := f.sample(sent, recv, server); got != changed || f.ns != want {
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
}
