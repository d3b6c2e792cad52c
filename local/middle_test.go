package local

import (
	"strings"
	"testing"
)

// middling makes the slots of a table be for keys with middles, which it does in its own
// time otherwise.
func middling(t *Table) {
	t.lodge.middling.Store(true)
	t.lodge.grow(0)
}

// A key with a middle goes on having one when there are more of these, and
// nobody without such a key has the memory for it.
func TestSlotsGrowWithTheirMiddles(t *testing.T) {
	table := newTable(t, TableOptions{})
	now := int64(table.clock.Now())
	tenant(t, table, strings.Repeat("s", inlineKey), fast)
	tenant(t, table, strings.Repeat("l", mostMiddle+1), fast)
	if table.lodge.rows.Load().middles.Load() != nil {
		t.Error("there are middles, and no key has one")
	}
	key := strings.Repeat("k", mostMiddle)
	table.Allow(key, fast, 1, now)
	until(t, "middles", func() bool { return table.lodge.rows.Load().middles.Load() != nil })
	tenant(t, table, key, fast)
	for _, k := range names("", slotsFirst) {
		table.Allow(k, fast, 1, now)
	}
	until(t, "more slots", func() bool { return len(table.lodge.rows.Load().slots) > slotsFirst })
	r := table.lodge.rows.Load()
	if m := r.middles.Load(); m == nil || len(*m) != len(r.slots) {
		t.Error("no middles for the new slots")
	}
	tenant(t, table, key, fast)
}

// No check makes the middles of a hundred thousand slots, or waits for them.
func TestNoCheckMakesMiddles(t *testing.T) {
	table := newTable(t, TableOptions{})
	key := strings.Repeat("k", inlineKey+1)
	table.lodge.growing.Lock()
	for range 1000 {
		if ok, _ := table.Allow(key, fast, 1, int64(table.clock.Now())); !ok {
			t.Fatal("refused")
		}
	}
	if table.lodge.rows.Load().middles.Load() != nil || slotOf(table, key, fast) != nil {
		t.Error("a check has made middles")
	}
	table.lodge.growing.Unlock()
	until(t, "middles", func() bool { return table.lodge.rows.Load().middles.Load() != nil })
	tenant(t, table, key, fast)
}
