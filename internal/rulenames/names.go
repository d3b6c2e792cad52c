// Package rulenames detects rules of one name that count differently and are used in turns, and rules
// that are built anew for each check.
package rulenames

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Bounds of what is remembered about rules, by name.
const (
	// maxNames is how many names are watched; rules of further ones are not compared.
	maxNames = 1024
	// maxMadeUp is how many of these may be names that clients make up.
	maxMadeUp = 100
	// maxShapes is how many replaced rules of one name are remembered.
	maxShapes = 8
	// nameCells is the number of cells of the cache in front of the map of names.
	nameCells = 256
	// manyRebuilt is after how many new rules with the numbers of the last one a program is told: more
	// than a file of rules is read again.
	manyRebuilt = 1000
)

// Names detects conflicts: rules of one name that count differently (by another
// algorithm, rate, period or number of buckets) are used in turns. Each change re-expresses
// what is counted, or counts elsewhere, so that the limit does not hold. To go from one rule
// to another once, as a deployment does, is no conflict; nor are other limits, as different
// plans have.
//
// A check that a lease decides is not noted. It need not be: a check under another rule is
// decided by the counter, which revokes the lease. Under another algorithm it is another
// counter; creating that revokes the lease of the first.
//
// The zero Names is ready to use, and safe for concurrent use.
type Names struct {
	cells     [nameCells]atomic.Pointer[named]
	all       sync.Map // string → *named
	known     atomic.Int64
	made      atomic.Int64 // of known, those that clients have made up
	conflicts atomic.Int64
	rebuilt   atomic.Int64

	// OnConflict is called for the first conflict of each name, maybe under locks of the
	// caller: it must not block. nil: it is not called. Set it before the first use.
	OnConflict func(was, is *limit.Rule)
	// OnRebuilt is called in the same way when a rule of a name has been built anew manyRebuilt times.
	OnRebuilt func(rule *limit.Rule)
}

// named is what is known about the rules of one name.
type named struct {
	current atomic.Pointer[limit.Rule] // used last, or one of the same shape
	mixed   atomic.Bool                // rules of several algorithms were used
	rebuilt atomic.Int64               // how often current was replaced by an equal rule

	mu       sync.Mutex    // protects all below
	before   []*limit.Rule // used earlier, the latest last; one for each shape
	reported bool          // the conflict was
}

func sameShape(a, b *limit.Rule) bool { return arith.Of(a).SameShape(arith.Of(b)) }

// See notes that a rule is used.
func (n *Names) See(rule *limit.Rule) {
	cell := &n.cells[arith.Of(rule).NameHash%nameCells]
	if e := cell.Load(); e != nil {
		if is := e.current.Load(); is == rule {
			return
		} else if sameShape(is, rule) {
			n.again(e, is, rule)
			return
		}
	}
	e := n.entry(rule)
	if e == nil {
		return
	}
	cell.Store(e)
	if sameShape(e.current.Load(), rule) {
		return
	}
	if was, first := n.change(e, rule); first && n.OnConflict != nil {
		n.OnConflict(was, rule)
	}
}

// again notes that a rule is used after was, which has its shape. Plans have other limits.
func (n *Names) again(e *named, was, rule *limit.Rule) {
	if arith.Of(rule).MadeUp || was.Limit() != rule.Limit() || was.IsDryRun() != rule.IsDryRun() || was.IsExact() != rule.IsExact() {
		return
	}
	if !e.current.CompareAndSwap(was, rule) {
		return
	}
	n.rebuilt.Add(1)
	if e.rebuilt.Add(1) == manyRebuilt && n.OnRebuilt != nil {
		n.OnRebuilt(rule)
	}
}

// Rebuilt returns how often a rule was replaced by another one that is equal.
func (n *Names) Rebuilt() int64 { return n.rebuilt.Load() }

// entry returns what is known about the rules of a name, nil if there are too many names.
func (n *Names) entry(rule *limit.Rule) *named {
	if e, ok := n.all.Load(rule.Name()); ok {
		return e.(*named)
	}
	madeUp := arith.Of(rule).MadeUp
	if n.known.Load() >= maxNames || madeUp && n.made.Load() >= maxMadeUp {
		return nil
	}
	e := new(named)
	e.current.Store(rule)
	is, loaded := n.all.LoadOrStore(rule.Name(), e)
	if !loaded {
		n.known.Add(1)
		if madeUp {
			n.made.Add(1)
		}
	}
	return is.(*named)
}

// change notes that a rule is used after one of another shape. It returns that one, and
// whether this is the first conflict of their name.
func (n *Names) change(e *named, rule *limit.Rule) (was *limit.Rule, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if was = e.current.Load(); sameShape(was, rule) {
		return was, false // another goroutine was faster
	}
	if arith.Of(was).Algorithm != arith.Of(rule).Algorithm {
		e.mixed.Store(true)
	}
	again := slices.IndexFunc(e.before, func(o *limit.Rule) bool { return sameShape(o, rule) })
	if again >= 0 {
		e.before = slices.Delete(e.before, again, again+1)
		n.conflicts.Add(1)
		first, e.reported = !e.reported, true
	} else if len(e.before) == maxShapes {
		e.before = slices.Delete(e.before, 0, 1)
	}
	e.before = append(e.before, was)
	e.current.Store(rule)
	return was, first
}

// Others returns the rules of this name that were used and have another algorithm.
func (n *Names) Others(rule *limit.Rule) (list []*limit.Rule) {
	e := n.cells[arith.Of(rule).NameHash%nameCells].Load()
	if e == nil || !e.mixed.Load() || e.current.Load().Name() != rule.Name() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range append(slices.Clone(e.before), e.current.Load()) {
		if arith.Of(o).Algorithm != arith.Of(rule).Algorithm {
			list = append(list, o)
		}
	}
	return list
}

// Current returns for each name the rule that was used last, or one of the same shape.
func (n *Names) Current() (list []*limit.Rule) {
	n.all.Range(func(_, e any) bool {
		list = append(list, e.(*named).current.Load())
		return true
	})
	slices.SortFunc(list, func(a, b *limit.Rule) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// Conflicts returns how often a rule was used again after another of its name that counts
// differently.
func (n *Names) Conflicts() int64 { return n.conflicts.Load() }
