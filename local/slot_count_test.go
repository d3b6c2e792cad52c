package local

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
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
			var before *slot
			var left uint16
			if c != nil {
				if before = c.slot.Load(); before != nil {
					left = before.left
				}
			}
			allowed, src := allow()
			if !allowed {
				t.Fatal("refused")
			}
			if before != nil && c.slot.Load() == before && before.left+1 == left {
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
	table.Peek(keys[0], rule, 1, now)
	compare("taken back")
	ask(keys[0], 200, bound)
	table.Peek(keys[0], rule, 1, now)
	link.SetMode(2, true)
	link.SetMode(1, true)
	ask(keys[0], 200, bound)
	if want[limit.SourceUnsynced] == 0 || want[limit.SourceDegraded] == 0 {
		t.Fatalf("not by two sources: %v", want)
	}
	compare("lent again")
	ask(keys[1], 300, named(keys[1]))
	table.Peek(keys[1], rule, 1, now)
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

// Nothing is lost or counted twice while all goes on at once: counting, growing, keys
// that come and go.
func TestSlotsCountInTheMiddle(t *testing.T) {
	table := newTable(t, TableOptions{MaxKeys: 1 << 14})
	rule := limit.Must(limit.Funnel("much", 1<<30, 1000, time.Second))
	reader := clock.ReaderOf(table.clock)
	var wg, look sync.WaitGroup
	var counted [4]int64
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
	for g := range counted {
		wg.Go(func() {
			for i := range 60_000 {
				key := fmt.Sprint("k", (i*7+g)%(16+i/20)) // more and more of them
				if _, _, by := table.AllowBy(&reader, key, rule, 1); by {
					counted[g]++
				}
				if i%97 == 0 {
					table.Peek(key, rule, 1, int64(table.clock.Now()))
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
