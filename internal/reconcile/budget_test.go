package reconcile

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What a pipeline may cost falls with answers that come late and grows with those that
// come soon, if it was used up.
func TestBudget(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, tt := range []struct {
		name       string
		from, want int64
		f          func(b *budget)
	}{
		{"soon, used up", 4 * ms, 4*ms + costStep, func(b *budget) { b.answered(4*ms, ms, 0, false) }},
		{"soon, not used up", 4 * ms, 4 * ms, func(b *budget) { b.answered(ms, ms, 0, false) }},
		{"soon, at the most", 10 * ms, 10 * ms, func(b *budget) { b.answered(10*ms, ms, 0, false) }},
		{"late", 4 * ms, 2 * ms, func(b *budget) { b.answered(4*ms, 40*ms, 0, false) }},
		{"late, of less", 10 * ms, 2 * ms, func(b *budget) { b.answered(4*ms, 40*ms, 0, false) }},
		{"late, of the least", 10 * ms / 64, 10 * ms / 64, func(b *budget) { b.answered(opCost, 40*ms, 0, false) }},
		{"late, but no later than it is far away", 4 * ms, 4*ms + 10*costStep, func(b *budget) { b.answered(4*ms, 170*ms, 150*ms, false) }},
		{"late by jitter", 4 * ms, 4*ms + 10*costStep, func(b *budget) { b.answered(4*ms, 170*ms, 90*ms, false) }},
		{"late, and far away", 4 * ms, 2 * ms, func(b *budget) { b.answered(4*ms, 310*ms, 150*ms, false) }},
		{"late, a connection was made", 4 * ms, 4 * ms, func(b *budget) { b.answered(4*ms, 310*ms, 150*ms, true) }},
		{"soon, a connection was made", 4 * ms, 4*ms + costStep, func(b *budget) { b.answered(4*ms, ms, 0, true) }},
		{"timed out", 10 * ms, 2 * ms, func(b *budget) { b.timedOut(4 * ms) }},
		{"timed out, of the least", 10 * ms / 64, 10 * ms / 64, func(b *budget) { b.timedOut(opCost) }},
		{"anew", opCost, 10 * ms / 8, (*budget).anew},
		{"anew, and well", 9 * ms, 9 * ms, (*budget).anew},
	} {
		b := newBudget(250 * ms)
		b.ns = tt.from
		if tt.f(&b); b.ns != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, time.Duration(b.ns), time.Duration(tt.want))
		}
	}
	if b := newBudget(ms); b.most != ms/8 {
		t.Errorf("with a time-out of 1 ms: %v", time.Duration(b.most))
	}
	wide := limit.Must(limit.SlidingWindowBuckets("wide", 1000, time.Hour, 1000))
	if n := mostCost / cost(wide); n < 5 || n > 20 {
		t.Errorf("%d windows of 1,000 buckets in one pipeline", n)
	}
}
