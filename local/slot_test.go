package local

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter that answers from a slot is in all one that answers itself: whatever
// happens to two of the same history, of which one may have a slot, they say the same
// and are the same.
func TestSlotsAreTheSame(t *testing.T) { theSame(t, false) }

// theSame compares counters that lend to slots, or to who has bound them as well, with
// such as do not lend, under rules of all kinds.
func theSame(t *testing.T, bound bool) {
	rules := []*limit.Rule{
		funnelRule(t, 1000, 7, 3*time.Millisecond), funnelRule(t, 5, 1000, time.Second), funnelRule(t, 0, 1, time.Second),
		funnelRule(t, 1_000_000, 1_000_000, time.Second), windowRule(t, 10, 100*time.Millisecond, 10),
		windowRule(t, 1000, 10*time.Second, 10), windowRule(t, 60, time.Hour, 1),
	}
	for i, r := range rules {
		for _, linked := range []bool{false, true} {
			answers, units := 0, 0
			for seed := range uint64(60) {
				a, u := slotted(t, r, linked, bound, seed)
				answers, units = answers+a, units+u
				if t.Failed() {
					t.Fatalf("rule %d, %v, linked %v, seed %d", i, r, linked, seed)
				}
			}
			if answers < 500 || r.Limit() > 10 && units < 300 {
				t.Errorf("%v, linked %v: %d answers on loan, %d units admitted", r, linked, answers, units)
			}
		}
	}
}

// slotted leads two counters through the same history, and returns how many checks a
// slot, or a pocket if one of them is bound, has answered for it, and how many of these it
// has admitted.
func slotted(t *testing.T, r *limit.Rule, linked, bound bool, seed uint64) (answers, units int) {
	rng := rand.New(rand.NewPCG(seed, 12))
	now := int64(1e12)
	both := [2]*same{newSame(r, linked, now), newSame(r, linked, now)}
	if linked {
		// Nobody is asked so seldom that it would have to be known when exactly.
		both[0].link.pace, both[1].link.pace = pace(5e9), pace(5e9)
	}
	slots := NewSlots(both[0].link)
	other := changed(r)
	pockets := map[*limit.Rule]*Bound{r: slots.Bind(both[0].c, r), other: slots.Bind(both[0].c, other)}
	for range 600 {
		now += rng.Int64N(1 << rng.IntN(31))
		event := rng.IntN(60)
		x, flip := rng.Int64N(1<<rng.IntN(11))+1, rng.IntN(2) == 0
		rule := r
		if event == 1 {
			rule = other
		}
		for _, s := range both {
			s.suffer(event, now, x, flip, r)
		}
		at := both[0].c.slot.Load()
		if x%3 == 0 {
			res, taken := slotTake(slots, both[0].c, now, rule)
			if want, _ := both[1].c.ask(now, 1, rule, true, 0); res != want {
				t.Errorf("at %d: %+v, without a slot %+v", now, res, want)
			}
			if taken {
				answers, units = answers+1, units+1
			}
			continue
		}
		lent := both[0].c.lentTo()
		allow := func() (bool, limit.Source, bool) { return slots.Allow(both[0].c, now, rule) }
		if bound && x%5 > 0 {
			allow = func() (bool, limit.Source, bool) { return pockets[rule].Allow(now) }
		}
		allowed, src, ok := allow()
		wantSrc, no := both[1].c.denies(now, 1, rule)
		want := false
		if !no {
			want, wantSrc, _ = both[1].c.allow(now, 1, rule)
		}
		if at != nil && at == both[0].c.slot.Load() || lent != nil && lent == both[0].c.lentTo() {
			if answers++; allowed {
				units++
			}
		}
		if !ok || allowed != want || src != wantSrc {
			t.Errorf("at %d: %v as %v, without a slot %v as %v", now, allowed, src, want, wantSrc)
		}
		if rng.IntN(8) == 0 {
			for _, s := range both {
				s.c.lock() // takes back what is lent
				s.c.mu.Unlock()
			}
			last := both[0].c.last
			if off := both[1].c.last - last; off > 0 && (r.Algorithm() == limit.AlgorithmFunnel || off < 1<<windowUnit) {
				both[0].c.last = both[1].c.last // a loan does not tell, or not exactly
			}
			compare(t, both[0].c, both[1].c)
			both[0].c.last = last
		}
	}
	return answers, units
}

var fast = limit.Must(limit.Funnel("fast", 1_000_000, 1_000_000, time.Second))

// Keys that a slot cannot tell apart by their hash share a row, and no more than that.
func TestSlotsKeepKeysApart(t *testing.T) {
	rule := limit.Must(limit.Funnel("apart", 1000, 1, time.Hour))
	table := newTable(t, TableOptions{hash: func(key string, _ *limit.Rule) uint64 { return 7<<56 | uint64(key[3]) }})
	now := int64(table.clock.Now())
	admitted := map[string]int{}
	for i := range 12 * 1500 {
		key := fmt.Sprint("key", string(rune('a'+i%12)))
		if ok, _ := table.Allow(key, rule, 1, now); ok {
			admitted[key]++
		}
	}
	for key, n := range admitted {
		if n != 1000 {
			t.Errorf("%s: %d units admitted of 1000", key, n)
		}
	}
}

// However a key is asked, by whom and for what, its limit holds, to the unit.
func TestSlotsUnderFire(t *testing.T) {
	rule := limit.Must(limit.Funnel("fire", 20_000, 1, time.Hour))
	// All are in one row, one more than it has ways, and three of them twice, with the same hash.
	table := newTable(t, TableOptions{hash: func(key string, _ *limit.Rule) uint64 { return uint64(key[3]) << 57 }})
	const keys = 12
	middling(table)
	var admitted [keys]atomic.Int64
	var handles [keys]*Handle
	for k := range handles {
		handles[k] = new(Handle)
		handles[k].Bind(table, fireKey(k), rule)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for range 60_000 {
				k, now := rng.IntN(keys), int64(table.clock.Now())
				key, ok, n := fireKey(k), false, int64(1)
				switch rng.IntN(40) {
				case 0:
					ok = table.Take(key, rule, 1, now).Allowed
				case 1:
					n = 3
					ok, _ = table.Allow(key, rule, n, now)
				case 2:
					n = -table.Refund(key, rule, 1, now)
					ok = true
				case 3:
					table.lodge.season.turn()
				case 4:
					table.Peek(key, rule, 1, now)
				case 5, 6, 7, 8:
					ok, _ = handles[k].Allow(1, now)
				default:
					ok, _ = table.Allow(key, rule, 1, now)
				}
				if ok {
					admitted[k].Add(n)
				}
			}
		})
	}
	wg.Wait()
	for k := range admitted {
		used := rule.Limit() - table.Peek(fireKey(k), rule, 1, 0).Remaining
		if got := admitted[k].Load(); got != used || got > rule.Limit() {
			t.Errorf("key%d: %d units admitted, %d counted", k, got, used)
		}
	}
}

func fireKey(k int) string {
	const twice = 3 // of the last of them, which differ only in their middles
	name, rest := k, ""
	if k >= 9-twice {
		name, rest = 9-twice+k%twice, strings.Repeat("-", 16)
		rest += fmt.Sprintf("%02d", k) + rest
	}
	return fmt.Sprint("key", string(rune('a'+name)), rest)
}

// What a unit weighs counts at once, also for a key that has a slot.
func TestSlotsEndWithTheMode(t *testing.T) {
	link := newTestLink()
	table := newTable(t, TableOptions{Link: link})
	now := int64(table.clock.Now())
	tenant(t, table, "k", fast)
	for _, m := range []struct {
		weight  int64
		allowed bool
		source  limit.Source
	}{{WeightClosed, false, limit.SourceDegraded}, {1, true, limit.SourceDegraded}, {WeightOpen, true, limit.SourceDegraded}} {
		link.SetMode(m.weight, true)
		if ok, src := table.Allow("k", fast, 1, now); ok != m.allowed || src != m.source {
			t.Errorf("weight %d: %v, %v", m.weight, ok, src)
		}
	}
}

// A new epoch asks everybody once, that the cache may hear of it.
func TestSlotsEndWithTheEpoch(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: epochParts * epochLeast})
	now := int64(table.clock.Now())
	tenant(t, table, "k", fast)
	c := table.recently(table.hashOf("k", fast), "k", fast)
	for _, k := range names("new", epochLeast) {
		table.Allow(k, fast, 1, now)
	}
	if slotOf(table, "k", fast) != nil {
		t.Error("nobody will hear of the key")
	}
	table.Allow("k", fast, 1, now)
	if c.epoch != uint8(table.epoch.Load()) || c.slot.Load() != nil {
		t.Errorf("asked in epoch %d, it is %d", c.epoch, table.epoch.Load())
	}
	tenant(t, table, "k", fast)
}

// slotOf returns the slot that answers for a key, or nil.
func slotOf(table *Table, key string, rule *limit.Rule) *tenancy {
	s := table.Seek(key, rule).slot
	if s == nil || s.isVacant() {
		return nil
	}
	k, ok := sign{}, true
	if len(key) <= inlineKey {
		k = signOf(key)
	} else if k, ok = table.lodge.signOf(s, key, table.hashOf(key, rule), new(middle)); !ok {
		return nil
	}
	if is := table.lodge.termsFrom(s, k, rule); is == nil || is.season != table.lodge.season.n.Load() {
		return nil
	}
	rows := table.lodge.rows.Load()
	i, _ := rows.index(s)
	return &rows.tenants[i]
}

// tenant asks until a slot answers for the key, and returns it.
func tenant(t *testing.T, table *Table, key string, rule *limit.Rule) *tenancy {
	t.Helper()
	if table.lodge.rows.Load().lacksMiddle(key) {
		middling(table)
	}
	for range 50 * askRefused { // one that refuses may have to wait for its turn
		if s := slotOf(table, key, rule); s != nil {
			return s
		}
		table.Allow(key, rule, 1, int64(table.clock.Now()))
	}
	t.Fatalf("no slot for %.40q", key)
	return nil
}

// apart returns n keys that can all have a slot at once: two of a row with the same tag
// cannot.
func apart(table *Table, rule *limit.Rule, prefix string, n int) (keys []string) {
	tags := make(map[uint64]bool)
	for i := 0; len(keys) < n; i++ {
		k := fmt.Sprint(prefix, i)
		if tag := slotTag(table.hashOf(k, rule)); !tags[tag] {
			tags[tag], keys = true, append(keys, k)
		}
	}
	return keys
}

// What a check has found may be out of date when a slot is to be taken for it.
func TestSlotsAreNotForTheOutdated(t *testing.T) {
	rule := funnelRule(t, 1000, 1, time.Hour)
	other := limit.Must(limit.Funnel(rule.Name(), 2000, 1, time.Hour))
	full := funnelRule(t, 0, 1, time.Hour)
	for what, c := range map[string]struct {
		rule  *limit.Rule
		epoch uint8
		do    func(*Link, *Counter)
		gets  bool
	}{
		"nothing":                {rule, 0, func(*Link, *Counter) {}, true},
		"nothing, for a refusal": {full, 0, func(*Link, *Counter) {}, true},
		"the mode":               {rule, 0, func(l *Link, _ *Counter) { l.SetMode(2, true) }, false},
		"the mode of a refusal":  {full, 0, func(l *Link, _ *Counter) { l.SetMode(2, true) }, false},
		"the epoch":              {rule, 1, func(*Link, *Counter) {}, false},
		"the rule":               {rule, 0, func(_ *Link, c *Counter) { c.allow(1e12, 1, other); c.allow(1e12, 1, other) }, false},
		"that nobody has looked": {rule, 0, func(_ *Link, c *Counter) { c.Unsynced() }, false},
	} {
		link := newTestLink()
		slots := NewSlots(link)
		now := int64(1e12)
		counter := newCounter("k", c.rule, 0, link, now)
		for range 3 {
			counter.allow(now, 1, c.rule)
		}
		c.do(link, counter)
		lend := func() *tenancy {
			slots.lodge.lend(counter, nil, c.rule, slots.lodge.season.n.Load(), c.epoch, now)
			return counter.slot.Load()
		}
		first := lend()
		if got := first != nil; got != c.gets {
			t.Errorf("%s has changed: gets a slot: %v", what, got)
		}
		if lend() != first {
			t.Errorf("%s has changed: two slots", what)
		}
	}
}

// Who has not been asked since the season turned gives up its slot at once.
func TestSlotsAreFreeAfterTheSeason(t *testing.T) {
	table := newTable(t, TableOptions{hash: func(key string, _ *limit.Rule) uint64 { return uint64(key[4]) << 57 }})
	for i := range slotWays {
		tenant(t, table, fmt.Sprint("key ", string(rune('a'+i))), fast)
	}
	table.lodge.season.turn()
	tenant(t, table, "key z", fast)
}

// There are more rules in a program's life than a table has terms for, and no slot
// answers for the rule of another.
func TestSlotsTellRulesApart(t *testing.T) {
	hands := clock.NewManual(start)
	table := newTable(t, TableOptions{Clock: hands})
	ask := func(r *limit.Rule, times int) (admitted int) {
		for range times {
			if ok, _ := table.Allow("k", r, 1, int64(hands.Now())); ok {
				admitted++
			}
		}
		return admitted
	}
	rules := make([]*limit.Rule, termsMost+1)
	for i := range rules {
		rules[i] = limit.Must(limit.Funnel(fmt.Sprint("rule ", i), 1_000_000, 1, time.Second))
		ask(rules[i], 1)
	}
	until(t, "more slots", func() bool { return len(table.lodge.rows.Load().slots) >= slotLoad*len(rules) })
	settle(t, table) // which takes back what was lent
	first, late := rules[0], rules[termsMost]
	tenant(t, table, "k", first)
	for _, r := range rules[:termsMost] {
		ask(r, 8)
	}
	if slotOf(table, "k", first) == nil || table.lodge.terms.last != termsMost {
		t.Fatalf("%d terms are too many", table.lodge.terms.last)
	}
	ask(late, 8)
	if slotOf(table, "k", first) == nil || slotOf(table, "k", late) != nil {
		t.Error("who comes late takes the number of another")
	}
	for range 3 { // another may have its tag, who has to go first
		hands.Advance(max(termsLast, slotIdle) + 1)
		ask(late, 300)
	}
	if slotOf(table, "k", late) == nil {
		t.Error("who comes late has no slot ever after")
	}
	if s := table.Seek("k", first).slot; s == nil || table.lodge.termsFrom(s, signOf("k"), first) != nil {
		t.Error("a slot from before its number was given to another")
	}
	tenant(t, table, "k", first)
	// Another rule of that name has nothing of its loan.
	smaller := limit.Must(limit.Funnel(first.Name(), 5, 1, time.Hour))
	if n := ask(smaller, 8); n != 0 {
		t.Errorf("%d units admitted above the limit", n)
	}
}

// A dozen keys need few slots, many keys need more; who had one gets another.
func TestSlotsGrow(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: 4096})
	now := int64(table.clock.Now())
	few := apart(table, fast, "few ", 12)
	for _, k := range few {
		tenant(t, table, k, fast)
	}
	many := names("many", 3000)
	if n := len(table.lodge.rows.Load().slots); n != slotsFirst {
		t.Errorf("%d slots for %d keys", n, len(few))
	}
	if most, large := table.lodge.most, newTable(t, TableOptions{MaxKeys: slotsFew + 1}).lodge.most; most != slotsMost || large != slotsMost/2 {
		t.Errorf("up to %d slots, %d in a large table", most, large)
	}
	for _, k := range many {
		table.Allow(k, fast, 1, now)
	}
	until(t, "more slots", func() bool { return len(table.lodge.rows.Load().slots) >= slotLoad*len(many) })
	have := 0
	for pass := 0; pass < 12 || have < 2900 && pass < 100; pass++ { // the season may turn in any
		have = 0
		for _, k := range append(few, many...) {
			if slotOf(table, k, fast) != nil {
				have++
			}
			table.Allow(k, fast, 1, now)
		}
	}
	if have < 2900 {
		t.Errorf("%d keys of 3012 have a slot", have)
	}
	for _, k := range few {
		used := fast.Limit() - table.Peek(k, fast, 1, now).Remaining
		if used < 12 {
			t.Errorf("%q: %d units counted", k, used)
		}
	}
}

// How long a key is makes no difference.
func TestSlotsOfLongKeys(t *testing.T) {
	rule := limit.Must(limit.Funnel("long", 100, 1, time.Hour))
	for _, n := range []int{0, 1, inlineKey, inlineKey + 1, 32, 33, mostMiddle, mostMiddle + 1, behindKey, behindKey + 1, 10_000} {
		table := newTable(t, TableOptions{})
		middling(table)
		now := int64(table.clock.Now())
		key, admitted := string(make([]byte, n)), 0
		for range 150 {
			if ok, _ := table.Allow(key, rule, 1, now); ok {
				admitted++
			}
		}
		if admitted != 100 {
			t.Errorf("%d bytes: %d units", n, admitted)
		}
		tenant(t, table, key, rule)
	}
}

// A slot that nobody has is not looked at twice, and taken again.
func TestSlotsThatAreVacant(t *testing.T) {
	for name, r := range map[string]*limit.Rule{"admits": fast, "refuses": funnelRule(t, 1, 1, time.Hour)} {
		table := newTable(t, TableOptions{})
		s := tenant(t, table, "k", r)
		tag := func() uint64 {
			h, rows := table.hashOf("k", r), table.lodge.rows.Load()
			for i := range uint64(slotWays) {
				row := h >> 8 & rows.mask
				if &rows.tenants[row*slotWays+i] == s {
					return rows.tags[row].Load() >> (8 * i) & 0xff &^ slotTag(h)
				}
			}
			t.Fatal("not in its row")
			return 0
		}
		// Who refuses is read by many, who admits is written to by one.
		if want := map[string]uint64{"admits": 0, "refuses": tagRefused}[name]; tag() != want {
			t.Errorf("%s: tag with %d, want %d", name, tag(), want)
		}
		back := func() {
			c := table.recently(table.hashOf("k", r), "k", r)
			c.lock() // takes back what was lent
			c.mu.Unlock()
		}
		if back(); table.Seek("k", r).slot != s.slot {
			t.Fatalf("%s: the tag has gone", name)
		}
		table.lodge.vacate(s.slot)
		if table.Seek("k", r).slot != nil {
			t.Errorf("%s: a vacant slot is found", name)
		}
		if again := tenant(t, table, "k", r); again != s {
			t.Errorf("%s: another slot", name)
		}
		table.lodge.vacate(s.slot)
		if slotOf(table, "k", r) != s {
			t.Errorf("%s: no slot for who has it", name)
		}
		back()
		table.Allow("k", r, 1, int64(table.clock.Now()))
		if table.Seek("k", r).slot != nil && slotOf(table, "k", r) == nil {
			t.Errorf("%s: a vacant slot is found by the next check, too", name)
		}
	}
}
