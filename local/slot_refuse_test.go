package local

import (
	"strconv"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What a slot has shown is not used when it is somebody else's, or of another season,
// by the time that it is to be used.
func TestSlotsShowOneLoan(t *testing.T) {
	link := newTestLink()
	slots := NewSlots(link)
	rule := limit.Must(limit.Funnel("r", 100_000, 1, time.Hour))
	now := int64(1e12)
	c := newCounter("k", rule, 0, link, now)
	for range 2 {
		link.SetMode(WeightClosed, true)
		now += int64(time.Second)
		slots.Allow(c, now, rule)
		s := c.slot.Load()
		if s == nil {
			t.Fatal("no slot")
		}
		w, terms := s.slot.word.Load(), slots.lodge.termsFrom(s.slot, signOf("k"), rule)
		if _, _, v := terms.decide(w, now); v != Refused {
			t.Fatalf("shows %x: %v", w, v)
		}
		link.SetMode(1, false)
		for range 300 {
			slots.Allow(c, now, rule)
		}
		if c.slot.Load() != s || s.terms.Load().season != slots.lodge.season.n.Load() {
			t.Fatal("not in its slot again")
		}
		if _, _, v := terms.decide(w, now); v != Unanswered {
			t.Errorf("the refusal of an outage is in force after it: %v", v)
		}
		if is := s.slot.word.Load(); is == w || refuses(is) {
			t.Errorf("shows %x after %x", is, w)
		}
	}
}

// Who is refused is not kept waiting by another key that the tags take for it.
func TestSlotsOfOthersAreNotLocked(t *testing.T) {
	table := newTable(t, TableOptions{hash: func(key string, _ *limit.Rule) uint64 { return 0x40<<56 | uint64(len(key)) }})
	now := int64(table.clock.Now())
	rule, full := funnelRule(t, 1000, 1, time.Hour), limit.Must(limit.Funnel("other", 1, 1, time.Hour))
	other := tenant(t, table, "other", rule)
	refused := func(ask func() bool) {
		t.Helper()
		other.mu.Lock()
		defer other.mu.Unlock()
		refusedAtOnce(t, func() (allowed bool) {
			for range 20 * askRefused { // sometimes it is its turn to take a slot
				now++
				allowed = ask() || allowed
			}
			return allowed
		})
	}
	byName := func() bool { ok, _ := table.Allow("hot", rule, 1, now); return ok }
	table.Allow("hot", rule, rule.Limit(), now)
	byName()
	if table.Seek("hot", rule).slot != other.slot {
		t.Fatal("the tags tell them apart")
	}
	refused(byName)
	if slot := tenant(t, table, "other", rule); slot != other {
		t.Fatal("has another slot")
	}
	same := func() bool { ok, _ := table.Allow("other", full, 1, now); return ok } // by another rule
	same()
	same()
	refused(same)
	var h Handle
	h.Bind(table, "hot", rule)
	bound := func() bool { ok, _ := h.Allow(1, now); return ok }
	bound()
	h.slot.Store(other.slot)
	refused(bound)
	if h.slot.Load() != nil {
		t.Error("goes on asking another's slot")
	}
}

// Nor does who is refused wait for others who are refused the same key.
func TestSlotsRefuseWithoutTheLock(t *testing.T) {
	table := newTable(t, TableOptions{})
	full := funnelRule(t, 1, 1, time.Hour)
	now := int64(table.clock.Now())
	var h Handle
	h.Bind(table, "k", full)
	locked := func() (s *tenancy, c *Counter) {
		s = tenant(t, table, "k", full)
		h.Allow(1, now)
		if c = s.c.Load(); c == nil {
			return nil, nil // the cache has just taken it in
		}
		c.mu.Lock()
		s.mu.Lock()
		if s.c.Load() == c && refuses(s.slot.word.Load()) {
			return s, c
		}
		s.mu.Unlock()
		c.mu.Unlock()
		return nil, nil
	}
	s, c := locked()
	for ; s == nil; s, c = locked() {
		table.Allow("k", full, 1, now)
	}
	defer s.mu.Unlock()
	defer c.mu.Unlock()
	refusedAtOnce(t, func() bool {
		allowed, _ := table.Allow("k", full, 1, now)
		also, _ := h.Allow(1, now)
		return allowed || also
	})
}

// refusedAtOnce fails the test if somebody is admitted, or waits for a lock that the
// test holds.
func refusedAtOnce(t *testing.T, ask func() (allowed bool)) {
	t.Helper()
	done := make(chan bool, 1)
	go func() { done <- ask() }()
	select {
	case allowed := <-done:
		if allowed {
			t.Error("admitted")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("waits for a lock")
	}
}

// A key that is refused has a slot again soon after it has lost it, however it has.
func TestSlotsAreHadAgain(t *testing.T) {
	clk := clock.NewManual(start)
	full := funnelRule(t, 1, 1, time.Hour)
	table := newTable(t, TableOptions{Clock: clk, hash: func(key string, _ *limit.Rule) uint64 { return uint64(key[0])<<57 | 1 }})
	for i := range slotWays - 1 {
		tenant(t, table, string(rune('a'+i)), fast)
	}
	tenant(t, table, "z", full)
	// The slot does not hear of refusals. When there is another that needs it, it goes.
	ask := func(others int) {
		for range 3000 {
			clk.Advance(time.Millisecond) // some clocks show no less
			for i := range others {
				for range 3 {
					table.Allow(string(rune('a'+i)), fast, 1, int64(clk.Now()))
				}
			}
			table.Allow("z", full, 1, int64(clk.Now()))
		}
	}
	if ask(slotWays); slotOf(table, "z", full) != nil {
		t.Error("a slot for one key more than there are")
	}
	if ask(slotWays - 1); slotOf(table, "z", full) == nil {
		t.Error("no slot after others have gone")
	}
	table.recent.Load().put(slotOf(table, "z", full).c.Load()) // or it would be asked when it is looked up
	table.lodge.season.turn()
	for i := 0; slotOf(table, "z", full) == nil; i++ {
		clk.Advance(time.Millisecond)
		if table.Allow("z", full, 1, int64(clk.Now())); i > 20*askRefused {
			t.Fatal("no slot in the new season")
		}
	}
}

// Who comes back has the slot that it had, whatever that was last lent.
func TestSlotsAreKept(t *testing.T) {
	rule := limit.Must(limit.Funnel("r", 100, 1, time.Hour))
	table := newTable(t, TableOptions{})
	now := int64(table.clock.Now())
	s := tenant(t, table, "k", rule)
	c := s.c.Load()
	var h Handle
	h.Bind(table, "k", rule) // unlike the table it does not find out that a tag is out of date
	for i := range 400 {
		if i%30 == 0 {
			c.lock() // takes back what was lent
			c.mu.Unlock()
		}
		h.Allow(1, now)
		if is := c.slot.Load(); is != nil && is != s {
			t.Fatalf("after %d checks another slot, and the tag of the first one stays", i)
		}
	}
	if !refuses(s.slot.word.Load()) {
		t.Error("nothing was refused")
	}
}

// Many keys that are refused have their slots after a few checks each, while there are
// vacant ones.
func TestSlotsSoonForMany(t *testing.T) {
	clk := clock.NewManual(start)
	table := newTable(t, TableOptions{Clock: clk})
	full := funnelRule(t, 1, 1, time.Hour)
	const keys = slotsFirst / slotLoad
	for ask := range 8 * askVacant {
		for i := range keys {
			clk.Advance(time.Microsecond)
			if c := table.Seek(strconv.Itoa(i), full).c; ask == 1 && c != nil {
				table.recent.Load().drop(c) // the first refusal is found in the cache
			}
			table.Allow(strconv.Itoa(i), full, 1, int64(clk.Now()))
		}
	}
	have := 0
	for i := range keys {
		if slotOf(table, strconv.Itoa(i), full) != nil {
			have++
		}
	}
	if have < keys*9/10 { // a few find another that has their tag
		t.Errorf("%d of %d keys have a slot", have, keys)
	}
}

// Who could have no slot anyway is seldom asked instead of being refused at once.
func TestSlotsAreNotAskedForInVain(t *testing.T) {
	for name, c := range map[string]struct {
		rule   *limit.Rule
		others int // in the row
		hash   func(key string, _ *limit.Rule) uint64
		most   int
	}{
		"a full row":              {funnelRule(t, 1, 1, time.Hour), slotWays, func(key string, _ *limit.Rule) uint64 { return uint64(key[0])<<57 | 1 }, 400},
		"another's tag":           {funnelRule(t, 1, 1, time.Hour), 1, func(key string, _ *limit.Rule) uint64 { return 1<<57 | uint64(key[0]) }, 400},
		"a rule that cannot lend": {limit.Must(limit.Funnel("odd", 1, 1, 1000*time.Hour+1)), 0, nil, 3},
		"a short refusal":         {funnelRule(t, 1, 1, 4*time.Millisecond), 0, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clock.NewManual(time.Unix(0, start.UnixNano()))
			table := newTable(t, TableOptions{Clock: clk, hash: c.hash})
			for i := range c.others {
				tenant(t, table, string(rune('a'+i)), fast)
			}
			table.Allow("z", c.rule, 1, int64(clk.Now()))
			at := table.Seek("z", c.rule)
			table.Allow("z", c.rule, 1, int64(clk.Now()))
			var z *Counter
			asked, last := 0, int64(0)
			for range 6400 {
				clk.Advance(time.Microsecond)
				for i := range c.others { // they keep their slots
					table.Allow(string(rune('a'+i)), fast, 1, int64(clk.Now()))
				}
				if table.Allow("z", c.rule, 1, int64(clk.Now())); z == nil {
					z = table.recently(at.hash, "z", c.rule)
				}
				if z.last != last {
					asked, last = asked+1, z.last
				}
			}
			if asked > c.most {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}
