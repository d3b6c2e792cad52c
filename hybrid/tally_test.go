package hybrid

import (
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
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
	if shared := sums.sum(&s, [counter.Sources]int64{}); shared != goroutines*each/2 || s.Allowed.Synced != s.Denied.Synced || s.Denied.Synced != goroutines*each/2 {
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

// What leases admit, which the table counts, and what the tally counts add up to all checks:
// by name, a long one too, bound, or bound only just now, admitted or not, or by a rule
// that refuses nobody.
func TestStatsCountEachDecisionOnce(t *testing.T) {
	l, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	const full, asked = 1000, 3000
	rule, dry := limit.Must(limit.Funnel("day", full, 1, 24*time.Hour)), limit.Must(limit.Funnel("dry", full, 1, 24*time.Hour)).DryRun()
	const long = "a key that is too long for a slot to have room for it"
	bound, taken := l.Key("bound", rule), l.Key("bound and taken", rule)
	ways := []func() bool{
		func() bool { return l.Allow("named", rule) },
		func() bool { return l.Take("taken", rule, 1).Allowed },
		func() bool { return l.Allow(long, rule) },
		func() bool { return l.Take(long+", taken", rule, 1).Allowed },
		bound.Allow,
		func() bool { return taken.Take(1).Allowed },
		func() bool { return l.Key("only just", rule).Allow() },
		func() bool { return l.Key(long+", only just", rule).Allow() },
	}
	for i := range asked {
		for j, ask := range ways {
			if ask() != (i < full) {
				t.Fatalf("check %d, way %d", i, j)
			}
		}
		if !l.Allow("dry", dry) || !l.Key("dry and bound", dry).Allow() || !l.Take("dry and taken", dry, 1).Allowed {
			t.Fatal("a dry run refuses")
		}
		if i%250 != 249 {
			continue
		}
		s, n, w := l.Stats(), min(i+1, full), len(ways)
		if s.Allowed.Local != uint64((w+3)*n) || s.AdmittedUnits != int64((w+3)*n) || s.Denied.Local != uint64(w*(i+1-n)) || s.WouldRefuse != uint64(3*(i+1-n)) {
			t.Errorf("after %d checks of each: %+v, %+v, %d units, %d but for dry runs", i+1, s.Allowed, s.Denied, s.AdmittedUnits, s.WouldRefuse)
		}
	}
	if l.table.Admitted()[limit.SourceLocal] < full {
		t.Error("slots have admitted hardly anything")
	}
}

// A refusal by the lease of a key that was just bound is counted as well.
func TestStatsCountRefusalsOfTheNewlyBound(t *testing.T) {
	l, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	k := l.Key("k", limit.Must(limit.Funnel("day", 1000, 1, 24*time.Hour)))
	k.Allow()
	k.AllowN(999)
	for range 10 {
		k.Allow()
	}
	if s := l.Stats(); s.Allowed.Local != 2 || s.Denied.Local != 10 || s.AdmittedUnits != 1000 {
		t.Errorf("%+v, %+v, %d units", s.Allowed, s.Denied, s.AdmittedUnits)
	}
}
