package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Who peeks at a key that has a slot is told what the slot knows, by the key's name and
// bound, and takes neither units nor the slot.
func TestPeekFromSlots(t *testing.T) {
	rule := funnelRule(t, 10, 1, time.Second)
	for _, key := range []string{"k", "a key that is longer than a slot has room for"} {
		hands := clock.NewManual(start)
		table := newTable(t, TableOptions{Clock: hands})
		var h Handle
		h.Bind(table, key, rule)
		s := tenant(t, table, key, rule)
		now := func() int64 { return int64(hands.Now()) }
		h.Allow(1, now())
		c := s.c.Load()
		used := c.funnel.pend.units - int64(unitsOf(s.slot.word.Load()))
		for range 3 {
			for how, peek := range map[string]func() limit.Result{
				"by name": func() limit.Result { return table.Peek(key, rule, 1, now()) },
				"bound":   func() limit.Result { return h.Peek(1, now()) },
				"just bound": func() limit.Result {
					var h Handle
					h.Bind(table, key, rule)
					h.Peek(1, now())
					return h.Peek(1, now())
				},
			} {
				want := limit.Result{Allowed: true, Limit: 10, Remaining: 10 - used, ResetAfter: time.Duration(used) * time.Second}
				if got := peek(); got != want {
					t.Errorf("%s: %+v, want %+v", how, got, want)
				}
				if c.slot.Load() != s {
					t.Fatalf("%s: the slot is gone", how)
				}
			}
			hands.Advance(time.Second)
			used--
		}
		for used < rule.Limit() {
			h.Allow(1, now())
			used++
		}
		if got := table.Peek(key, rule, 1, now()); got.Allowed || got.Remaining != 0 {
			t.Errorf("a full funnel: %+v", got)
		}
	}
}
