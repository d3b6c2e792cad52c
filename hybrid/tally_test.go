package hybrid

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// A cell shares no cache line with anything that others write, or all read.
func TestCellsFillLines(t *testing.T) {
	const line = 64
	l, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	if at, size := uintptr(unsafe.Pointer(&l.tally)), unsafe.Sizeof(cell{}); at%line != 0 || size%line != 0 {
		t.Errorf("cells of %d bytes begin at %d of a line", size, at%line)
	}
}

// A bound key is a cache line, or whoever holds many would wait for memory twice.
func TestKeyFillsALine(t *testing.T) {
	if size := unsafe.Sizeof(Key{}); size > 64 {
		t.Errorf("%d bytes", size)
	}
}

// No decision is lost, from however many goroutines, and however their stacks grow.
func TestTallyLosesNothing(t *testing.T) {
	var sums tally
	var all sync.WaitGroup
	const goroutines, each = 50, 1000
	for range goroutines {
		all.Go(func() {
			for i := range each {
				deep(i%64, func() { sums.count(1, i%2 == 0, limit.SourceSynced) })
			}
		})
	}
	all.Wait()
	var s Stats
	if shared := sums.sum(&s, [local.Sources]int64{}); shared != goroutines*each/2 || s.Allowed.Synced != s.Denied.Synced || s.Denied.Synced != goroutines*each/2 {
		t.Errorf("%d shared of %+v", shared, s)
	}
	used := 0
	for i := range sums.cells {
		if sums.cells[i].one[1][1].Load() > 0 {
			used++
		}
	}
	if used < 8 {
		t.Errorf("%d goroutines meet in %d cells", goroutines, used)
	}
}

// deep calls f from further down the stack.
func deep(by int, f func()) {
	var room [256]byte
	if by > 0 {
		deep(by-1, f)
		room[by] = 1
		return
	}
	f()
}

// What slots count by themselves and what the tally counts add up to all that was asked,
// by name or bound, admitted or not.
func TestStatsCountEachDecisionOnce(t *testing.T) {
	l, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	rule := limit.Must(limit.Funnel("day", 1000, 1, 24*time.Hour))
	bound, taken := l.Key("bound", rule), l.Key("bound and taken", rule)
	for i := range 3000 {
		for _, ok := range []bool{l.Allow("named", rule), l.Take("taken", rule, 1).Allowed, bound.Allow(), taken.Take(1).Allowed} {
			if ok != (i < 1000) {
				t.Fatalf("check %d", i)
			}
		}
		if i%250 == 249 {
			s, n := l.Stats(), uint64(4*min(i+1, 1000))
			if s.Allowed.Local != n || s.AdmittedUnits != int64(n) || s.Denied.Local != uint64(4*(i+1))-n {
				t.Errorf("after %d checks of each: %+v, %+v, %d units", i+1, s.Allowed, s.Denied, s.AdmittedUnits)
			}
		}
	}
	if l.table.Admitted()[limit.SourceLocal] == 0 {
		t.Error("no slot has admitted anything")
	}
}
