package local

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Whatever the numbers of a rule and the time are, slots count as counters do.
func TestSlotsOfExtremes(t *testing.T) {
	for what, draw := range map[string]func(rng *rand.Rand, units int64, d time.Duration) (*limit.Rule, error){
		"funnels": func(rng *rand.Rand, units int64, d time.Duration) (*limit.Rule, error) {
			return limit.Funnel("x", units, extreme(rng, limit.MaxUnits), d)
		},
		"windows": func(rng *rand.Rand, units int64, d time.Duration) (*limit.Rule, error) {
			return limit.SlidingWindowBuckets("x", units, d, int(extreme(rng, limit.MaxBuckets)))
		},
		"fixed windows": func(_ *rand.Rand, units int64, d time.Duration) (*limit.Rule, error) {
			return limit.FixedWindow("x", units, d)
		},
	} {
		made, answers := 0, 0
		for seed := range uint64(2000) {
			rng := rand.New(rand.NewPCG(seed, 99))
			units := extreme(rng, limit.MaxUnits)
			if rng.IntN(3) == 0 {
				units = rng.Int64N(6)
			}
			r, err := draw(rng, units, time.Duration(extreme(rng, int64(limit.MaxWindow))))
			if err != nil {
				continue
			}
			made++
			if answers += atExtremes(t, rng, r); t.Failed() {
				t.Fatalf("seed %d, %v, %+v", seed, r, r.Ticks())
			}
		}
		if made < 500 || answers < 1000 {
			t.Errorf("%d answers from slots, of %d %s", answers, made, what)
		}
	}
}

// extreme draws a number up to most, often one near an end.
func extreme(rng *rand.Rand, most int64) int64 {
	switch rng.IntN(6) {
	case 0:
		return most
	case 1:
		return 1 + rng.Int64N(5)
	case 2:
		return most - rng.Int64N(min(most, 5))
	}
	return min(1+rng.Int64N(1<<(rng.IntN(62)+1)), most)
}

// atExtremes asks two counters at extreme times, of which one may have a slot, and
// returns how many answers that has given.
func atExtremes(t *testing.T, rng *rand.Rand, r *limit.Rule) (answers int) {
	now := [...]int64{0, extreme(rng, math.MaxInt64), math.MaxInt64 - extreme(rng, 1e9), 175e16 + rng.Int64N(1e9)}[rng.IntN(4)]
	coarse, _ := coarseOf(r) // what lies between is rounded up on loan
	now &^= 1<<coarse - 1
	a, b := newCounter("k", r, 0, nil, now), newCounter("k", r, 0, nil, now)
	slots := NewSlots(nil)
	latest := now
	for range 80 {
		switch rng.IntN(12) {
		case 0:
			now = extreme(rng, math.MaxInt64)
		case 1:
			later := max(now, 0)
			if later += max(r.Ticks().Most+rng.Int64N(5)-2, 0); rng.IntN(2) == 0 {
				later += extreme(rng, math.MaxInt64)
			}
			if now = later; now < 0 {
				now = loanLatest - 500 + rng.Int64N(1000)
			}
		case 2:
			now -= rng.Int64N(1000)
		case 3, 4, 5, 6:
			if now < math.MaxInt64/4*3 {
				now += rng.Int64N(max(r.One().NS, int64(r.Width()), 1) + 2)
			}
		case 7:
			now = -extreme(rng, math.MaxInt64)
		case 8:
			if width := int64(r.Width()); width > 0 && now < math.MaxInt64-width {
				now = (floorDiv(now, width)+1)*width - rng.Int64N(2) // where a bucket ends
			}
		}
		now &^= 1<<coarse - 1
		if now < latest { // a slot does not know when it was asked last
			a.Unsynced() // takes back what is lent
			b.Unsynced()
			a.last = max(a.last, b.last)
		}
		latest = max(latest, now)
		event, units := rng.IntN(25), extreme(rng, math.MaxInt64)
		for _, c := range []*Counter{a, b} {
			switch event {
			case 0:
				c.set(now, units, r)
			case 1:
				c.refund(now, units, r)
			case 2:
				c.allow(now, 0, r)
			}
		}
		at := a.slot.Load()
		got, _, _ := slots.Allow(a, now, r)
		_, no := b.denies(now, 1, r)
		want := false
		if !no {
			want, _, _ = b.allow(now, 1, r)
		}
		if at != nil && at == a.slot.Load() {
			answers++
		}
		if got != want {
			t.Errorf("at %d: %v, without a slot %v", now, got, want)
		}
	}
	a.Unsynced() // takes back what is lent
	if off, ok := r.ToTicks(r.Sub(b.funnel.view, a.funnel.view)); coarse > 0 && ok && off < 1<<coarse {
		a.funnel.view, a.funnel.pend.tat = b.funnel.view, b.funnel.pend.tat // what is rounded off
	}
	if compare(t, a, b); a.last > b.last {
		t.Errorf("the latest time is %d, without a slot %d", a.last, b.last)
	}
	return answers
}

// Whatever a rate is, a busy key has a slot, today and for decades.
func TestSlotsForAnyRate(t *testing.T) {
	table := newTable(t, TableOptions{})
	for _, units := range []int64{1, 7, 70, 90, 350, 999, 9999, 1_234_567} {
		rule := limit.Must(limit.Funnel("r", 1000, units, time.Second))
		for _, now := range []int64{int64(table.clock.Now()), 4e18} { // until 2096
			c, slots := newCounter("k", rule, 0, nil, now), NewSlots(nil)
			for range 3 {
				slots.Allow(c, now, rule)
			}
			if s := c.slot.Load(); s == nil {
				t.Errorf("%d units a second, at %d: no slot", units, now)
			}
		}
	}
}

// A key may come back after so long that the ticks since would wrap to none.
func TestSlotsOfThoseWhoComeBack(t *testing.T) {
	r := limit.Must(limit.Funnel("r", 10, 1<<20, 999_999_999))
	now, idle := int64(1e12), int64(1)<<44
	if per := r.Ticks().PerNS; uint64(per)*uint64(idle) != 0 {
		t.Fatalf("%d ticks in a nanosecond: choose another time", per)
	}
	c, slots := newCounter("k", r, 0, nil, now), NewSlots(nil)
	for range 3 {
		for i := range 10 {
			if ok, _, _ := slots.Allow(c, now, r); !ok {
				t.Errorf("at %d unit %d of 10 is refused", now, i+1)
			}
		}
		if ok, _, _ := slots.Allow(c, now, r); ok {
			t.Errorf("at %d more than 10", now)
		}
		c.Unsynced() // takes back the refusal
		slots.Allow(c, now+int64(r.Period()), r)
		for range 8 {
			slots.Allow(c, now+int64(r.Period()), r)
		}
		if s := c.slot.Load(); s == nil || s.slot.isVacant() {
			t.Fatal("answers from no slot")
		}
		now += int64(r.Period()) + idle
	}
}

// A debt may be higher than what a funnel can hold can be added to.
func TestSlotsOfDebtors(t *testing.T) {
	r := limit.Must(limit.Funnel("d", 1, 5, 150_000_000_000_000_001))
	now := int64(1_750_000_000_000_000_000)
	for used := int64(1); used < 20; used++ {
		c := newCounter("k", r, 0, nil, now)
		slots := NewSlots(nil)
		c.set(now, used, r)
		c.allow(now, 0, r)
		slots.lodge.lend(c, nil, r, slots.lodge.season.n.Load(), 0, now)
		if c.slot.Load() != nil {
			t.Errorf("%d used: no units were asked for, and that made it brisk", used)
		}
		for _, debt := range []int64{r.Ticks().Full + used, timeMost/2 - used, timeMost/2 + used, timeMost + used, math.MaxInt64 - used} {
			few := limit.Must(limit.Funnel("few", 1, 1, time.Second))
			d := newCounter("k", few, 0, nil, now)
			d.last = now
			terms := newTerms(few, math.MaxInt64, now)
			terms.turn, terms.season = slots.lodge.season, slots.lodge.season.n.Load()
			w, ok := terms.word(d, loan{hold: debt, left: 1})
			if _, _, v := terms.decide(w, now); ok && v == Admitted {
				t.Errorf("admitted on top of a debt of %d", debt)
			}
		}
	}
}

// A slot that others hold is not waited for, nor who has it: they may wait for us.
func TestSlotsWaitForNobody(t *testing.T) {
	slots := NewSlots(nil)
	now := int64(1e12)
	var tenants []*Counter
	rows := slots.lodge.rows.Load()
	for i := range slotWays {
		c := newCounter(fmt.Sprint(i), fast, uint64(i+1)<<57, nil, now)
		for c.slot.Load() == nil {
			slots.Allow(c, now, fast)
		}
		tenants = append(tenants, c)
	}
	slots.lodge.season.turn() // all of them may have to go
	for _, c := range tenants {
		c.mu.Lock()
	}
	done := make(chan *tenancy, 1)
	go func() {
		s := rows.takeLocked(99<<57, false, slots.lodge.season.n.Load(), now)
		done <- s
	}()
	var s *tenancy
	until(t, "no slot", func() bool {
		select {
		case s = <-done:
			return true
		default:
			return false
		}
	})
	if s != nil {
		t.Error("took the slot of a counter that somebody else has locked")
	}
	for _, c := range tenants {
		c.mu.Unlock()
	}
	if s = rows.takeLocked(99<<57, false, slots.lodge.season.n.Load(), now); s == nil {
		t.Fatal("nobody gives up a slot")
	}
	s.mu.Unlock()
}

// Who begins in one season and ends in the next has a slot that answers nothing.
func TestSlotsOfTheLastSeason(t *testing.T) {
	slots := NewSlots(nil)
	now := int64(1e12)
	for _, r := range []*limit.Rule{fast, funnelRule(t, 0, 1, time.Hour)} {
		c := newCounter("k", r, 0, nil, now)
		before := slots.lodge.season.n.Load()
		for range 3 {
			c.allow(now, 1, r)
		}
		slots.lodge.season.turn()
		slots.lodge.lend(c, nil, r, before, 0, now)
		s := c.slot.Load()
		if s == nil {
			t.Fatalf("%v: no slot", r)
		}
		if _, _, ok := slots.lodge.answerKey(s.slot, "k", 0, r, now); ok {
			t.Errorf("%v: answers in the new season", r)
		}
	}
}

// All of a key counts: its first bytes, its last, those in between, how many. That is so
// of long ones as well if the table has the same hash for them, and if only the slots do.
func TestSlotsTellKeysApart(t *testing.T) {
	letters := make([]byte, behindKey+2)
	for i := range letters {
		letters[i] = byte('!' + i) // no two are the same
	}
	for _, r := range []*limit.Rule{fast, funnelRule(t, 0, 1, time.Hour)} {
		tellApart(t, r, string(letters))
		tellApart(t, r, string(make([]byte, len(letters)))) // these differ only in how many they are
	}
}

// tellApart fails the test if the slot of a beginning of base answers for another key.
func tellApart(t *testing.T, r *limit.Rule, base string) {
	now := int64(1e12)
	for n := range len(base) + 1 {
		slots := NewSlots(nil)
		key := base[:n]
		c := newCounter(key, r, 0, nil, now)
		for c.slot.Load() == nil {
			slots.Allow(c, now, r)
		}
		s := c.slot.Load()
		is := func(k string) bool {
			_, _, ok := slots.lodge.answerKey(s.slot, k, 0, r, now)
			return ok
		}
		if !is(key) || !is(string([]byte(key))) {
			t.Errorf("%v: does not know %q", r, key)
		}
		for i := range n {
			other := []byte(key)
			if other[i] ^= 1; is(string(other)) {
				t.Errorf("%v: takes %q for %q", r, other, key)
			}
		}
		if _, _, ok := slots.lodge.answerKey(s.slot, key, 1, r, now); ok != (n <= mostMiddle) {
			t.Errorf("%v: a key of %d bytes with another hash: %v", r, n, ok)
		}
		for m := range len(base) + 1 {
			if m != n && is(base[:m]) {
				t.Errorf("%v: takes %q for %q", r, base[:m], key)
			}
		}
	}
}

// A refusal that takes no lock is over when somebody has taken it back.
func TestSlotsRefuseNoLonger(t *testing.T) {
	rule := funnelRule(t, 1, 1, time.Hour)
	table := newTable(t, TableOptions{})
	now := int64(table.clock.Now())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20_000 {
				table.Allow("other", rule, 1, now)
				table.Allow("k", rule, 1, now)
			}
		})
	}
	for i := range 200 {
		table.Set("k", rule, 1, now)
		if ok, _ := table.Allow("k", rule, 1, now); ok {
			t.Fatalf("round %d: admitted", i)
		}
	}
	wg.Wait()
	for i := range 200 {
		table.Set("k", rule, 0, now)
		first, _ := table.Allow("k", rule, 1, now)
		second, _ := table.Allow("k", rule, 1, now)
		if !first || second {
			t.Fatalf("round %d: %v, then %v", i, first, second)
		}
	}
}

// A row of slots begins where a cache line does.
func TestSlotsAreWhole(t *testing.T) {
	for n := slotsFirst; n <= 8*slotsFirst; n *= 2 {
		if at := slotAddress(newSlotRows(n)) % 64; at != 0 {
			t.Errorf("%d slots begin %d bytes into a cache line", n, at)
		}
	}
}

func slotAddress(r *slotRows) uintptr { return uintptr(unsafe.Pointer(&r.slots[0])) }
