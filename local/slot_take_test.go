package local

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A key that is only asked with Take gets a slot, if that can give the whole answer, and
// is answered from it: by its name, a long one too, and bound. All of that is counted.
func TestTakeFromSlots(t *testing.T) {
	funnel, window := funnelRule(t, 100_000, 1, time.Hour), windowRule(t, 100_000, time.Hour, 10)
	for _, rule := range []*limit.Rule{funnel, window} {
		table := newTable(t, TableOptions{})
		middling(table)
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

// A slot answers for one unit, and leaves every other number to the counter.
func TestSlotsAreForOneUnit(t *testing.T) {
	rule := funnelRule(t, 1000, 1, time.Hour)
	table := newTable(t, TableOptions{})
	hands := clock.NewManual(time.Unix(0, int64(table.clock.Now())))
	now := int64(hands.Now())
	var h Handle
	h.Bind(table, "k", rule)
	h.Allow(1, now) // knows its counter
	for ways, take := range map[string]func(n int64) bool{
		"allow":        func(n int64) bool { ok, _, _ := table.AllowBy(hands, "k", rule, n); return ok },
		"allow, bound": func(n int64) bool { ok, _, _ := h.AllowBy(hands, n); return ok },
		"take":         func(n int64) bool { return table.Take("k", rule, n, now).Allowed },
		"take, bound": func(n int64) bool {
			res, ok := h.TakeFromSlot(n, now)
			if !ok {
				res = h.TakeAt(n, now)
			}
			return res.Allowed
		},
	} {
		for _, n := range []int64{0, 5, rule.Limit() + 1} {
			tenant(t, table, "k", rule)
			h.Allow(1, now)
			before := table.Admitted()
			slot := slotOf(table, "k", rule)
			if slot == nil || h.slot.Load() != slot.slot {
				t.Fatal("no slot")
			}
			counter := slot.c.Load()
			ok := take(n)
			if table.Admitted() != before {
				t.Errorf("%s of %d units: a slot has answered", ways, n)
			}
			left := table.Peek("k", rule, 1, now).Remaining
			counter.set(now, 0, rule)
			if want := rule.Limit(); ok != (n <= want) || left >= want {
				t.Errorf("%s of %d units: %v, %d remain", ways, n, ok, left)
			}
		}
	}
}

// Who makes a rule for each check gets no slot for it, and takes nobody else's: terms are
// few.
func TestTakeByRulesOfTheMoment(t *testing.T) {
	table := newTable(t, TableOptions{})
	now := int64(table.clock.Now())
	season := table.lodge.season.n.Load()
	for i := range int64(20_000) {
		now += 25_000
		table.Take("k", limit.Must(limit.Funnel("test", 1000, 100+i%2, time.Millisecond)), 1, now)
	}
	if n := table.lodge.season.n.Load(); n != season || table.lodge.terms.last != 0 {
		t.Errorf("%d seasons, %d terms", n-season, table.lodge.terms.last)
	}
}

// Whichever way a key is asked it is one key, whatever bytes it has.
func TestEveryWayIsToTheSameCounter(t *testing.T) {
	rule := funnelRule(t, 1000, 1, time.Hour)
	table := newTable(t, TableOptions{})
	hands := clock.NewManual(time.Unix(0, int64(table.clock.Now())))
	now := int64(hands.Now())
	rng := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]bool)
	for n := range 2 * inlineKey {
		for range 20 {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rng.IntN(3) * 0x7f)
			}
			key := string(b)
			if seen[key] {
				continue
			}
			seen[key] = true
			var h Handle
			h.Bind(table, strings.Clone(key), rule)
			table.AllowBy(hands, key, rule, 1)
			table.Allow(strings.Clone(key), rule, 1, now)
			table.Take(key, rule, 1, now)
			h.AllowBy(hands, 1)
			h.TakeAt(1, now)
			if left := table.Peek(key, rule, 1, now).Remaining; left != rule.Limit()-5 {
				t.Errorf("%q: %d remain of %d after 5 units", key, left, rule.Limit())
			}
		}
	}
	if live := table.Stats().Live; live != int64(len(seen)) {
		t.Errorf("%d counters for %d keys", live, len(seen))
	}
}

// slotTake is [Table.Take] of one unit of a counter, and tells whether a slot has answered.
func slotTake(slots *Slots, c *Counter, now int64, rule *limit.Rule) (res limit.Result, taken bool) {
	if at := c.lodging(); at != nil && takesFromSlots(rule) {
		if res, taken = slots.lodge.takeKey(at, c.Key(), c.hash, rule, now, true); taken {
			return res, true
		}
	}
	season := slots.lodge.season.n.Load()
	res, how := c.ask(now, 1, rule, true, 0)
	if how == steady {
		slots.lodge.lend(c, nil, rule, season, 0, now)
	}
	return res, false
}
