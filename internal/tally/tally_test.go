package tally

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func named(name string) *limit.Rule { return limit.Must(limit.FixedWindow(name, 10, time.Minute)) }

// A cell shares no cache line with anything that others write, or all read.
func TestCellsFillLines(t *testing.T) {
	const line = 64
	var all Tallies
	for i := range 100 {
		is := all.Of(named(fmt.Sprint(i)))
		if at, size := uintptr(unsafe.Pointer(&is.cells[0])), unsafe.Sizeof(cell{}); at%line != 0 || size%line != 0 {
			t.Fatalf("cells of %d bytes begin at %d of a line", size, at%line)
		}
	}
}

// No decision is lost, from however many goroutines.
func TestTallyLosesNothing(t *testing.T) {
	var sums Tallies
	rule := named("r")
	var all, begun sync.WaitGroup
	const goroutines, each = 50, 1000
	begun.Add(goroutines)
	for range goroutines {
		all.Go(func() {
			begun.Done()
			begun.Wait() // a goroutine that has ended leaves its stack to the next one
			for i := range each {
				sums.Of(rule).Count(1, i%2 == 0, limit.SourceSynced)
			}
		})
	}
	all.Wait()
	want := Sums{Allowed: [Groups]uint64{Synced: goroutines * each / 2}, Denied: [Groups]uint64{Synced: goroutines * each / 2}, Units: [Groups]int64{Synced: goroutines * each / 2}}
	if is := sums.All(); !slices.Equal(is, []Named{{"r", want}}) {
		t.Errorf("%+v", is)
	}
	used, cells := 0, sums.Of(rule).cells
	for i := range cells {
		if cells[i].one[1][Synced].Load() > 0 {
			used++
		}
	}
	if used < 8 {
		t.Errorf("%d goroutines meet in %d cells of %d", goroutines, used, len(cells))
	}
}

// Each kind of decision is counted as what it is, and each source in its group.
func TestTallyCountsKinds(t *testing.T) {
	var all Tallies
	is := all.Of(named("r"))
	for src, g := range map[limit.Source]int{
		limit.SourceLocal: Local, limit.SourceRemote: Remote, limit.SourceUnsynced: Unsynced,
		limit.SourceSynced: Synced, limit.SourceDegraded: Degraded, limit.SourceInvalid: Local, 255: Local,
	} {
		before := is.Sum()
		is.Count(1, true, src)
		is.Count(5, true, src)
		is.Count(7, false, src)
		is.Count(0, true, src)
		is.Leased(20, src) // of which 4 together
		is.Together(4, src)
		want := before
		want.Allowed[g] += 3 + 17
		want.Denied[g]++
		want.Units[g] += 6 + 20
		if got := is.Sum(); got != want {
			t.Errorf("%v: %+v, want %+v", src, got, want)
		}
	}
}

// A number that was reported does not become smaller, in whatever order one decision is
// counted, nor does it wrap around.
func TestSumsNeverFall(t *testing.T) {
	var all Tallies
	is := all.Of(named("r"))
	is.Together(4, limit.SourceSynced) // before what it corrects
	if got := is.Sum().Allowed[Synced]; got != 0 {
		t.Errorf("%d decisions of none", got)
	}
	is.Leased(4, limit.SourceSynced)
	if got := is.Sum().Allowed[Synced]; got != 1 {
		t.Errorf("%d decisions of 1", got)
	}
	is.Leased(4, limit.SourceSynced)
	if got := is.Sum().Allowed[Synced]; got != 5 {
		t.Errorf("%d decisions of 1 and of 4 so far", got)
	}
	is.Together(4, limit.SourceSynced)
	if got := is.Sum().Allowed[Synced]; got != 5 {
		t.Errorf("%d decisions, and 5 were reported before", got)
	}
}

// However many names there are, no more than MaxNames have a tally of their own, and no
// decision of the others is lost. All goroutines find the same tally.
//
// Fault 63: as many names of rules as there are keys are counted together.
func TestNamesAreBounded(t *testing.T) {
	var all Tallies
	const names, each = 2 * MaxNames, 4
	var wg sync.WaitGroup
	for range each {
		wg.Go(func() {
			for i := range names {
				all.Of(named(fmt.Sprint("user", i))).CountOne(true, limit.SourceLocal)
			}
		})
	}
	wg.Wait()
	list := all.All()
	if len(list) != MaxNames+1 || list[0].Name != "" || list[0].Allowed[Local] != each*(names-MaxNames) {
		t.Fatalf("%d names, first %+v", len(list), list[0])
	}
	for _, is := range list[1:] {
		if is.Allowed[Local] != each {
			t.Errorf("%s: %d, want %d", is.Name, is.Allowed[Local], each)
		}
	}
	for range 2 {
		all.Of(nil).Invalid()
		all.Of(new(limit.Rule)).Invalid()
	}
	all.OfName("").Exempt()
	all.OfName("one more").Exempt()
	all.OfName("user0").Exempt()
	if all.OfName("user0") != all.Of(named("user0")) && all.Of(named("user0")) != all.rest() {
		t.Error("a name and a rule of that name have two tallies")
	}
	if is := all.All(); len(is) != MaxNames+1 || is[0].Invalid != 4 || is[0].Exempt < 2 {
		t.Errorf("%d names, first %+v", len(is), is[0])
	}
}

// Names that clients make up leave a place for those of the service.
func TestNamesThatClientsMakeUp(t *testing.T) {
	var all Tallies
	for i := range 2 * MaxNames {
		rule := named(fmt.Sprint("rate", i))
		arith.Of(rule).MadeUp = true
		all.Of(rule).CountOne(true, limit.SourceLocal)
	}
	for i := range MaxNames - MaxMadeUp {
		all.Of(named(fmt.Sprint("rule", i))).CountOne(true, limit.SourceLocal)
	}
	list := all.All()
	if len(list) != MaxNames+1 || list[0].Allowed[Local] != 2*MaxNames-MaxMadeUp {
		t.Fatalf("%d names, %d counted together", len(list), list[0].Allowed[Local])
	}
	for _, is := range list[1:] {
		if is.Allowed[Local] != 1 {
			t.Errorf("%s: %d", is.Name, is.Allowed[Local])
		}
	}
}

// Names with one hash are different names.
func TestNamesOfOneHash(t *testing.T) {
	var all Tallies
	a, b := named("a"), named("b")
	first := newTally("other", arith.Of(a).NameHash)
	all.table[arith.Of(a).NameHash%slots].Store(first)
	if is := all.Of(a); is == first || is != all.Of(named("a")) || is == all.Of(b) {
		t.Error("rules of other names share a tally, or rules of one name do not")
	}
}
