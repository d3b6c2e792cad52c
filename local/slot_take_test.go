package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A key that is only asked with Take gets a slot, if that can give the whole answer, and
// is answered from it: by its name, a long one too, and bound. All of that is counted.
func TestTakeFromSlots(t *testing.T) {
	funnel, window := funnelRule(t, 100_000, 1, time.Hour), windowRule(t, 100_000, time.Hour, 10)
	for _, rule := range []*limit.Rule{funnel, window} {
		table := newTable(t, TableOptions{})
		now := int64(table.clock.Now())
		var h Handle
		h.Bind(table, "bound", rule)
		byName := func(key string) func() (limit.Result, bool) {
			return func() (limit.Result, bool) {
				at := table.Seek(key, rule)
				if res, ok := table.TakeFromSlot(at, key, rule, 1, now); ok {
					return res, true
				}
				return table.TakeAt(at, key, rule, 1, now), false
			}
		}
		for how, take := range map[string]func() (limit.Result, bool){
			"by name": byName("k"), "by a long name": byName("a key that is longer than a slot has room for"),
			"bound": func() (limit.Result, bool) {
				if res, ok := h.TakeFromSlot(1, now); ok {
					return res, true
				}
				return h.TakeAt(1, now), false
			},
		} {
			const asked = 2000
			before, counted := table.Admitted()[limit.SourceLocal], int64(0)
			for i := range int64(asked) {
				res, by := take()
				want := limit.Result{Allowed: true, Limit: rule.Limit(), Remaining: rule.Limit() - i - 1, ResetAfter: res.ResetAfter, Source: limit.SourceLocal}
				if rule == funnel {
					want.ResetAfter = time.Duration(i+1) * time.Hour
				}
				if res != want {
					t.Fatalf("%v, %s: %+v, want %+v", rule, how, res, want)
				}
				if by {
					counted++
				}
			}
			if got := table.Admitted()[limit.SourceLocal] - before; got != counted {
				t.Errorf("%v, %s: counts %d of %d", rule, how, got, counted)
			}
			if rule == window && counted != 0 || rule == funnel && counted < asked*9/10 {
				t.Errorf("%v, %s: %d of %d from slots", rule, how, counted, asked)
			}
		}
	}
}
