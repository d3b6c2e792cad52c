package local

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A handle of a long key that goes on with the slot it had is not admitted at the cost of
// who has that now, be it the key whose sign is nothing but zeros.
func TestHandlesLeaveTheirSlotToOthers(t *testing.T) {
	rule := limit.Must(limit.FixedWindow("h", 3000, time.Hour))
	table := newTable(t, TableOptions{hash: func(string, *limit.Rule) uint64 { return 5 << 57 }})
	now, long := int64(table.clock.Now()), strings.Repeat("x", mostMiddle+1)
	h := new(Handle)
	h.Bind(table, long, rule)
	var admitted, others int64
	ask := func() {
		if ok, _ := h.Allow(1, now); ok {
			admitted++
		}
	}
	for range 100 {
		ask()
	}
	h.slot.Store(tenant(t, table, long, rule).slot)
	if !table.Take(long, rule, 2, now).Allowed { // takes back what is lent
		t.Fatal("refused")
	}
	for range 100 {
		if ok, _ := table.Allow("", rule, 1, now); ok {
			others++
		}
	}
	if slotOf(table, "", rule) == nil {
		t.Fatal("the other has no slot")
	}
	before := table.Peek(long, rule, 1, now).Remaining
	admitted = 0
	for range 5 {
		ask()
	}
	if got := before - table.Peek(long, rule, 1, now).Remaining; got != admitted {
		t.Errorf("%d units admitted, %d counted", admitted, got)
	}
	if got := rule.Limit() - table.Peek("", rule, 1, now).Remaining; got != others {
		t.Errorf("the other: %d units admitted, %d counted", others, got)
	}
}

// How long a key with a middle is does not look like the middle of one that has none.
func TestMiddlesAreNoneOfShortKeys(t *testing.T) {
	for n := inlineKey + 1; n <= mostMiddle; n++ {
		table := newTable(t, TableOptions{hash: func(string, *limit.Rule) uint64 { return 5 << 57 }})
		first, last := strings.Repeat("a", 8), strings.Repeat("b", 8)
		tenant(t, table, first+strings.Repeat("m", n-16)+last, fast)
		if slotOf(table, first+string([]byte{byte(n), 0})+last, fast) != nil {
			t.Errorf("a key of %d bytes is taken for one of %d", inlineKey, n)
		}
	}
}

// Who has a slot in hand while there come to be more of them asks the counter.
func TestSlotsInHandWhileTheyGrow(t *testing.T) {
	table := newTable(t, TableOptions{})
	key, now := strings.Repeat("k", mostMiddle), int64(table.clock.Now())
	tenant(t, table, key, fast)
	at := table.Seek(key, fast)
	table.lodge.grow(4 * slotsFirst)
	if _, ok := table.TakeFromSlot(at, key, fast, 1, now); ok {
		t.Error("answered by a slot that nobody has")
	}
	if ok, _ := table.Allow(key, fast, 1, now); !ok {
		t.Error("refused")
	}
}
