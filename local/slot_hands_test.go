package local

import (
	"testing"

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
