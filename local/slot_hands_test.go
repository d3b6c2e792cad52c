package local

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A check that has looked at a slot, and is interrupted while that gets another tenant, or
// its own again, does not change what that has lent, even if all that there is to see of it
// looks the same.
func TestSlotsThatChangeHands(t *testing.T) {
	for _, rule := range []*limit.Rule{fast, windowRule(t, 1<<30, 1e10, 10)} {
		slots := NewSlots(nil)
		now := int64(1e12)
		seen := make(map[uint64]bool)
		for i := range 2 * (numberMask + 1) {
			c := newCounter("k", rule, 1<<57, nil, now)
			for range 10 {
				slots.Allow(c, now, rule)
			}
			d := c.slot.Load()
			if d != &slots.lodge.rows.Load().tenants[0] {
				t.Fatal("not in its slot")
			}
			w := d.slot.word.Load()
			if was := i > numberMask; seen[w] != was {
				t.Errorf("%v, loan %d: has the word %x of another: %v", rule, i, w, seen[w])
			}
			seen[w] = true
			c.lock() // takes back what is lent
			c.mu.Unlock()
			if d.slot.word.CompareAndSwap(w, w) {
				t.Errorf("%v, loan %d: goes on when it is over", rule, i)
			}
		}
	}
}

// Who is asked has a slot, and who is not gives it up to somebody who is.
func TestSlotsChangeHands(t *testing.T) {
	clk := clock.NewManual(start)
	table := newTable(t, TableOptions{Clock: clk, hash: func(key string, _ *limit.Rule) uint64 { return uint64(0x7f^len(key)) << 57 }})
	names := make([]string, slotWays+1)
	for i := range names {
		names[i] = string(make([]byte, i+1))
	}
	ask := func(key string) *tenancy {
		for range 200 {
			table.Allow(key, fast, 1, int64(clk.Now()))
		}
		return slotOf(table, key, fast)
	}
	for _, k := range names[:slotWays] {
		if ask(k) == nil {
			t.Fatalf("no slot for %q", k)
		}
	}
	last := names[slotWays]
	if ask(last) != nil {
		t.Fatal("a slot for one key more than there are")
	}
	clk.Advance(slotIdle / 2)
	idle, busy := names[slotWays-1], names[:slotWays-1] // the others are looked at first
	for _, k := range busy {
		ask(k)
	}
	if ask(last) != nil {
		t.Fatal("a slot for one key more than there are, a while later")
	}
	clk.Advance(slotIdle/2 + 1)
	if ask(last) == nil {
		t.Error("a key that is not asked keeps its slot from one that is")
	}
	if slotOf(table, idle, fast) != nil {
		t.Error("the slot has two tenants")
	}
	for _, k := range busy {
		if slotOf(table, k, fast) == nil {
			t.Errorf("%q had to go", k)
		}
	}
	if got := table.Peek(idle, fast, 1, int64(clk.Now())).Remaining; got != fast.Limit() {
		t.Errorf("after a second %d units remain", got)
	}
}
