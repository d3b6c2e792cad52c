package local

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The last nanosecond of a bucket is not the first of the next one, whoever answers.
func TestSlotsEndWithTheBucket(t *testing.T) {
	rule := limit.Must(limit.FixedWindow("r", 10, time.Second))
	begin := int64(1_790_000_000_000_000_000)
	for what, ask := range map[string]func(c *Counter, slots *Slots, now int64){
		"a slot":  func(c *Counter, slots *Slots, now int64) { slots.Allow(c, now, rule) },
		"briskly": func(c *Counter, _ *Slots, now int64) { c.allow(now, 1, rule) },
	} {
		for _, late := range []int64{-1, 0} {
			c, slots := newCounter("k", rule, 0, nil, begin), NewSlots(nil)
			ask(c, slots, begin)
			ask(c, slots, begin)
			end := begin + int64(rule.Period()) + late
			ask(c, slots, end)
			c.Unsynced() // takes back what is lent
			want := map[int64]int64{-1: 3, 0: 1}[late]
			if w := c.win(); w.cur != end/int64(rule.Period()) || w.pend[0] != want {
				t.Errorf("%s, %d ns after the end: %d units in bucket %d, want %d in %d", what, late, w.pend[0], w.cur, want, end/int64(rule.Period()))
			}
		}
	}
}

// No unit fits before all that is in its way has left, and then it does.
func TestSlotsLendWhatFits(t *testing.T) {
	rule := limit.Must(limit.SlidingWindowBuckets("r", 10, time.Millisecond, 1))
	begin := int64(1_790_000_000_000_000_000)
	for _, at := range []struct{ elapsed, fits int64 }{{0, 1}, {1, 2}, {100_000, 2}, {100_001, 3}, {200_000, 3}, {200_001, 4}, {800_000, 10}} {
		c, slots := newCounter("k", rule, 0, nil, begin), NewSlots(nil)
		for i := range int64(9) {
			c.allow(begin+i*100_000, 1, rule)
		}
		now, got := begin+int64(rule.Period())+at.elapsed, int64(0)
		for range 10 {
			if ok, _, _ := slots.Allow(c, now, rule); ok {
				got++
			}
		}
		if got != at.fits {
			t.Errorf("%d ns after 9 units: %d of 10 fit, want %d", at.elapsed, got, at.fits)
		}
	}
}

// A window's bucket ends when the authority's clock says so. Slots that go by an older
// reading of it end when it has moved by more than two readings may differ, at once or bit
// by bit.
func TestSlotsOfWindowsGoByTheClock(t *testing.T) {
	rule := windowRule(t, 1000, time.Minute, 10)
	link := newTestLink()
	slots := NewSlots(link)
	now := int64(1e12)
	c := newCounter("k", rule, 0, link, now)
	lend := func() bool {
		slots.lodge.lend(c, nil, rule, slots.lodge.season.n.Load(), 0, now)
		s := c.slot.Load()
		return s != nil && s.terms.Load().season == slots.lodge.season.n.Load()
	}
	part := link.Part(1)
	for _, step := range []struct {
		what       string
		ns, slack  int64
		asked      bool
		lent, ends bool // what was lent before has ended
	}{
		{"a guess", 0, -1, true, false, false},
		{"the first reading", 0, 1, true, true, true},
		{"another one", clockStep / 2, 1, false, true, false},
		{"a little more", clockStep/2 + 1, 1, false, false, true},
		{"the same, seen", clockStep/2 + 1, 1, true, true, false},
		{"a little less", clockStep / 2, 1, true, true, false},
		{"another one, back", -1, 1, true, true, true},
		{"a guess again", 0, -1, false, false, true},
	} {
		before := slots.lodge.season.n.Load()
		if part.SetOffset(step.ns, step.slack); (slots.lodge.season.n.Load() != before) != step.ends {
			t.Errorf("%s: the season turns: %v", step.what, !step.ends)
		}
		c.Shard(func(string) int { return 1 })
		for range 3 {
			if step.asked {
				c.allow(now, 1, rule)
			}
		}
		if got := lend(); got != step.lent {
			t.Errorf("%s: lent: %v", step.what, got)
		}
	}
	// Seen by nobody but who lends: what it is asked for is of an older reading.
	part.SetOffset(0, 1)
	for range 3 {
		c.allow(now, 1, rule)
	}
	part.SetOffset(1, 1)
	if lend() {
		t.Error("lent by an outdated reading")
	}
	for range 3 {
		part.SetOffset(0, 1)
		for range 3 {
			c.allow(now, 1, rule)
		}
		if !lend() {
			t.Fatal("nothing lent")
		}
		off, season := int64(0), slots.lodge.season.n.Load()
		for slots.lodge.season.n.Load() == season {
			if off > clockStep {
				t.Fatalf("a slot goes by a clock that is wrong by %v", time.Duration(off))
			}
			off += clockStep / 8
			part.SetOffset(off, 1)
		}
	}
}

// Whoever lends in a new season goes by the clock that has made it one.
func TestSlotsOfWindowsAreNotLate(t *testing.T) {
	rule := limit.Must(limit.FixedWindow("r", 1_000_000_000, 24*time.Hour))
	link := NewLink(pace(time.Hour), 4)
	part, slots := link.Part(1), NewSlots(link)
	part.SetOffset(0, 1)
	now := int64(1_790_000_000_000_000_000)
	c := newCounter("k", rule, 0, link, now)
	c.Shard(func(string) int { return 1 })
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				slots.Allow(c, now, rule)
			}
		})
	}
	rounds := 100_000
	if runtime.GOMAXPROCS(0) == 1 {
		rounds = 300 // the others would have to be interrupted at the right moment
	}
	for i := range rounds {
		off, slack := int64(i%2)*int64(time.Hour), int64(1)
		if i%7 == 0 {
			slack = -1
		}
		part.SetOffset(off, slack)
		c.mu.Lock()
		if s := c.slot.Load(); s != nil {
			s.mu.Lock()
			if s.terms.Load().season == slots.lodge.season.n.Load() && !refuses(s.slot.word.Load()) && (c.win().off != off || slack < 0) {
				t.Errorf("a slot by an offset of %v, it is %v, give or take %d", time.Duration(c.win().off), time.Duration(off), slack)
			}
			s.mu.Unlock()
		}
		c.mu.Unlock()
		if i%100 == 0 {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
}

// A slot that nobody has admits nothing, not even to a key that looks like none in a
// season that looks like none.
func TestSlotsOfNobody(t *testing.T) {
	rule := limit.Must(limit.Funnel("r", 1000, 1, time.Hour))
	table := newTable(t, TableOptions{hash: func(string, *limit.Rule) uint64 { return 7 << 57 }})
	now := int64(table.clock.Now())
	tenant(t, table, "", rule)
	before := table.Peek("", rule, 2, now).Remaining // takes back the loan, and leaves the tag
	table.lodge.season.n.Store(^uint32(0))
	table.lodge.season.turn()
	table.Allow("", rule, 1, now)
	if after := table.Peek("", rule, 1, now).Remaining; after != before-1 {
		t.Errorf("%d units remain after one of %d", after, before)
	}
}

// A counter and its window are one piece of memory, by whichever rule of few buckets.
func TestCounterInOne(t *testing.T) {
	for _, c := range []struct {
		rule *limit.Rule
		want float64
	}{
		{limit.Must(limit.FixedWindow("r", 1, time.Second)), 1},
		{limit.Must(limit.SlidingWindow("r", 1, time.Second)), 1},
		{limit.Must(limit.SlidingWindowBuckets("r", 1, time.Second, fewBuckets)), 4},
		{limit.Must(limit.Funnel("r", 1, 1, time.Second)), 1},
	} {
		var counter *Counter
		if got := testing.AllocsPerRun(100, func() { counter = newCounter("k", c.rule, 0, nil, 1e18) }); got != c.want {
			t.Errorf("%v: %v allocations, want %v", c.rule, got, c.want)
		}
		if w := counter.win(); w != nil && len(w.pend) != c.rule.Kept()+1 {
			t.Errorf("%v: %d buckets", c.rule, len(w.pend))
		}
	}
}
