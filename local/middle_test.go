package local

import (
	"strings"
	"testing"
)

// A key with a middle goes on having one when there are more of these, and
// nobody without such a key has the memory for it.
func TestSlotsGrowWithTheirMiddles(t *testing.T) {
	table := newTable(t, TableOptions{})
	now := int64(table.clock.Now())
	tenant(t, table, strings.Repeat("s", inlineKey), fast)
	if table.lodge.rows.Load().middles.Load() != nil {
		t.Error("there are middles, and no key has one")
	}
	key := strings.Repeat("k", mostMiddle)
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
