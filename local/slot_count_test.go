package local

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Each unit that a slot admits is counted once, by the source of its time, whatever
// becomes of the loan, and however many a loan would be good for.
func TestSlotsCountTheirUnits(t *testing.T) {
	link := newTestLink()
	table := newTable(t, TableOptions{Link: link})
	rule := limit.Must(limit.Funnel("much", 1<<30, 1000, time.Second))
	now := int64(table.clock.Now())
	var want [Sources]int64
	ask := func(key string, times int, allow func() (bool, limit.Source)) {
		t.Helper()
		for range times {
			c := table.recently(table.hashOf(key, rule), key, rule)
			var before *tenancy
			var left uint32
			if c != nil {
				if before = c.slot.Load(); before != nil {
					left = unitsOf(before.slot.word.Load())
				}
			}
			allowed, src := allow()
			if !allowed {
				t.Fatal("refused")
			}
			if before != nil && c.slot.Load() == before && unitsOf(before.slot.word.Load())+1 == left {
				want[src]++
			}
		}
	}
	compare := func(what string) {
		t.Helper()
		if got := table.Admitted(); got != want {
			t.Errorf("%s: counts %v, want %v", what, got, want)
		}
	}
	keys := apart(table, rule, "k", 3)
	named := func(key string) func() (bool, limit.Source) {
		return func() (bool, limit.Source) { return table.Allow(key, rule, 1, now) }
	}
	var h Handle // leaves its slot the tag: nobody looks for it
	h.Bind(table, keys[0], rule)
	bound := func() (bool, limit.Source) { return h.Allow(1, now) }
	ask(keys[0], 300, bound)
	if want == [Sources]int64{} {
		t.Fatal("no slot has admitted anything")
	}
	compare("a loan")
	ask(keys[0], 100, bound)
	table.Peek(keys[0], rule, 2, now)
	compare("taken back") // a question for more than one unit does
	ask(keys[0], 200, bound)
	table.Peek(keys[0], rule, 2, now)
	link.SetMode(2, true)
	link.SetMode(1, true)
	ask(keys[0], 200, bound)
	if want[limit.SourceUnsynced] == 0 || want[limit.SourceDegraded] == 0 {
		t.Fatalf("not by two sources: %v", want)
	}
	compare("lent again")
	ask(keys[1], 300, named(keys[1]))
	table.Peek(keys[1], rule, 2, now)
	table.Allow(keys[1], rule, 1, now) // finds that nobody has the slot
	compare("vacated")
	ask(keys[2], 300, named(keys[2]))
	table.lodge.grow(slotsFirst)
	compare("grown")
}

// A loan ends when it is used up, before the count does.
func TestSlotsCountFurtherThanALoan(t *testing.T) {
	table := newTable(t, TableOptions{})
	rule := limit.Must(limit.Funnel("much", 1<<30, 1000, time.Second))
	now := int64(table.clock.Now())
	const asked = 300_000
	for range asked {
		if ok, _ := table.Allow("k", rule, 1, now); !ok {
			t.Fatal("refused")
		}
	}
	n := table.Admitted()[limit.SourceLocal]
	if n > asked || n < asked*99/100 {
		t.Errorf("slots have admitted %d of %d", n, asked)
	}
	if used := rule.Limit() - table.Peek("k", rule, 1, now).Remaining; used != asked {
		t.Errorf("%d units used, want %d", used, asked)
	}
}

// Nothing is lost or counted twice while all goes on at once: counting, keys that come and
// go, and slots that grow under those that are asked all the time.
func TestSlotsCountInTheMiddle(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: 1 << 14})
	rule := limit.Must(limit.Funnel("much", 1<<30, 1000, time.Second))
	const askers, asked, growths = 4, 40_000, 8
	var wg, look sync.WaitGroup
	var counted [askers]int64
	stop := make(chan struct{})
	look.Go(func() {
		for last := int64(0); ; {
			select {
			case <-stop:
				return
			default:
			}
			n := table.Admitted()[limit.SourceLocal]
			if n < last {
				t.Errorf("%d units after %d", n, last)
			}
			last = n
		}
	})
	for g := range askers {
		wg.Go(func() {
			var busy [40]Handle
			for i := range busy {
				busy[i].Bind(table, fmt.Sprint("busy", i), rule)
			}
			for i := range asked {
				key := fmt.Sprint("k", (i*7+g)%(16+i/20)) // more and more of them
				_, _, byName := table.AllowBy(table.clock, key, rule, 1)
				_, _, bound := busy[(i*3+g)%len(busy)].AllowBy(table.clock, 1)
				for _, by := range []bool{byName, bound} {
					if by {
						counted[g]++
					}
				}
				if i%97 == 0 {
					table.Peek(key, rule, 2, int64(table.clock.Now()))
				}
				if at := i * growths / asked; g == 0 && i%(asked/growths) == 0 {
					table.lodge.grow(slotsFirst << at / slotLoad)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	look.Wait()
	sum := int64(0)
	for _, n := range counted {
		sum += n
	}
	if got := table.Admitted()[limit.SourceLocal]; got != sum || sum == 0 {
		t.Errorf("counts %d units, slots have admitted %d", got, sum)
	}
}

// Who looks while slots grow waits until those are counted that nobody finds any more.
func TestSlotsCountWhileTheyGrow(t *testing.T) {
	table := newTable(t, TableOptions{})
	rule := limit.Must(limit.Funnel("much", 1<<30, 1000, time.Second))
	c := tenant(t, table, "k", rule).c.Load()
	for range 100 {
		table.Allow("k", rule, 1, int64(table.clock.Now()))
	}
	before, rows := table.Admitted(), table.lodge.rows.Load()
	for range 100 {
		table.Allow("k", rule, 1, int64(table.clock.Now()))
	}
	c.mu.Lock() // growing has to wait for what it has lent
	var grown sync.WaitGroup
	grown.Go(func() { table.lodge.grow(slotsFirst) })
	for table.lodge.rows.Load() == rows {
		runtime.Gosched()
	}
	seen := make(chan int64, 1)
	go func() { seen <- table.Admitted()[limit.SourceLocal] }()
	for range 1000 { // time enough to be told too little
		runtime.Gosched()
	}
	c.mu.Unlock()
	if n := <-seen; n != before[limit.SourceLocal]+100 {
		t.Errorf("%d units after %d and 100", n, before[limit.SourceLocal])
	}
	grown.Wait()
}

// Who lends while slots grow, and has not seen it, is not left with a slot that nobody finds
// or counts any more.
func TestSlotsGrowUnderWhoLends(t *testing.T) {
	slots := NewSlots(nil)
	now := int64(1e12)
	c := newCounter("k", fast, 0, nil, now)
	for range 3 {
		c.allow(now, 1, fast)
	}
	l := &slots.lodge
	rows, season := l.rows.Load(), l.season.n.Load()
	c.mu.Lock()
	d := rows.takeLocked(c.hash, false, season, now)
	var grown sync.WaitGroup
	grown.Go(func() { l.grow(slotsFirst) })
	for l.rows.Load() == rows {
		runtime.Gosched()
	}
	for range 1000 { // time enough to pass by
		runtime.Gosched()
	}
	terms := l.termsOf(fast, limit.SourceLocal, season, c.last)
	w, _ := terms.word(c, loan{left: 5})
	d.c.Store(c)
	d.terms.Store(terms)
	d.lent = 5
	c.bookLoanLocked(5)
	d.slot.word.Store(w)
	c.slot.Store(d)
	d.mu.Unlock()
	c.mu.Unlock()
	grown.Wait()
	if c.slot.Load() != nil || c.funnel.pend.units != 3 {
		t.Errorf("%d units after 3, a slot: %v", c.funnel.pend.units, c.slot.Load() != nil)
	}
}
