package tally

import (
	"cmp"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// MaxNames is how many names of rules are counted each by itself. All further ones are
	// counted together.
	MaxNames = 1000
	// MaxMadeUp is how many of these may be names that clients make up, so that they leave a place
	// for the names of the service.
	MaxMadeUp = 100
	// slots is the size of the hash table of names. Half of it stays free, so that a name is
	// found, or found missing, within a few steps.
	slots = 2048
	// Bounds of the number of cells of a tally: so many that goroutines rarely share one.
	fewestCells, mostCells = 16, 64
)

// Tallies counts decisions by the name of their rule. Names are never forgotten. The zero
// Tallies is ready to use. All methods are safe for concurrent use.
type Tallies struct {
	// An open-addressed hash table with linear probing. Slots are filled under mu, and do not
	// change after that: to find a name takes no lock.
	table [slots]atomic.Pointer[Tally]
	other atomic.Pointer[Tally] // of further names, and of checks without a valid rule; nil: there were none
	known atomic.Int64          // names in the table
	mu    sync.Mutex            // held to add a tally
	made  atomic.Int64          // names in the table that clients have made up
}

// Of returns the tally of a rule, which may be nil or invalid.
func (t *Tallies) Of(rule *limit.Rule) *Tally {
	if !rule.Valid() {
		return t.rest()
	}
	r := arith.Of(rule)
	return t.named(r.Name, r.NameHash, r.MadeUp)
}

// OfName returns the tally of the rules of a name, of which there may be none; "" is for the rest.
func (t *Tallies) OfName(name string) *Tally {
	if name == "" {
		return t.rest()
	}
	return t.named(name, arith.HashName(name), false)
}

func (t *Tallies) named(name string, hash uint64, madeUp bool) *Tally {
	if is, _ := t.find(name, hash); is != nil {
		return is
	}
	return t.add(name, hash, madeUp)
}

// find returns the tally of a name. If there is none, free is its slot.
func (t *Tallies) find(name string, hash uint64) (is *Tally, free *atomic.Pointer[Tally]) {
	for i := hash; ; i++ {
		slot := &t.table[i%slots]
		if is = slot.Load(); is == nil {
			return nil, slot
		}
		if is.hash == hash && is.name == name {
			return is, nil
		}
	}
}

// add returns the tally of a name that was not in the table a moment ago.
func (t *Tallies) add(name string, hash uint64, madeUp bool) *Tally {
	if t.full(madeUp) {
		if is, _ := t.find(name, hash); is != nil { // it was the last to be added
			return is
		}
		return t.rest()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	is, free := t.find(name, hash)
	switch {
	case is != nil:
	case t.full(madeUp):
		is = t.restLocked()
	default:
		is = newTally(name, hash)
		free.Store(is)
		t.known.Add(1)
		if madeUp {
			t.made.Add(1)
		}
	}
	return is
}

// full reports whether there is no place for another name.
func (t *Tallies) full(madeUp bool) bool {
	return t.known.Load() >= MaxNames || madeUp && t.made.Load() >= MaxMadeUp
}

// rest returns the tally of what has none of its own.
func (t *Tallies) rest() *Tally {
	if o := t.other.Load(); o != nil {
		return o
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.restLocked()
}

func (t *Tallies) restLocked() *Tally {
	if t.other.Load() == nil {
		t.other.Store(newTally("", 0))
	}
	return t.other.Load()
}

func newTally(name string, hash uint64) *Tally {
	n := min(max(4*runtime.GOMAXPROCS(0), fewestCells), mostCells)
	b := bits.Len(uint(n - 1)) // rounds up to a power of two
	return &Tally{name: strings.Clone(name), hash: hash, cells: make([]cell, 1<<b), shift: uint8(64 - b)}
}

// Named is what was counted under a name; the empty name is of all that has no tally of its own.
type Named struct {
	Name string
	Sums
}

// All returns what was counted, in the order of the names, the empty one first if there is
// anything under it.
func (t *Tallies) All() (list []Named) {
	if o := t.other.Load(); o != nil {
		list = append(list, Named{"", o.Sum()})
	}
	for i := range t.table {
		if is := t.table[i].Load(); is != nil {
			list = append(list, Named{is.name, is.Sum()})
		}
	}
	slices.SortFunc(list, func(a, b Named) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
