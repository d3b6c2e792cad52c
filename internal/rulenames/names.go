// Package rulenames detects rules of one name that count differently and are used in turns, and rules
// that are built anew for each check.
package rulenames

import (
	"math/bits"
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
	// manyRebuilt is how many new rules with the numbers of an earlier one make a program be told, if they
	// come within rebuiltWithin ns: a file of rules is not read again so often.
	manyRebuilt   = 1000
	rebuiltWithin = 3600_000_000_000
	// copyCells is how many rules of one name with different numbers are watched for that.
	copyCells = 16
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
	copies  atomic.Pointer[copies]     // nil: only current was used

	mu       sync.Mutex    // protects all below
	before   []*limit.Rule // used earlier, the latest last; one for each shape
	reported bool          // the conflict was
}

// copies has rules of one name and shape, by their other numbers. Rules that a program keeps, such as plans,
// or one rule in two of its packages, are found again. A rule that is built anew for each check is not.
type copies struct {
	cells  [copyCells]struct{ last, before atomic.Pointer[limit.Rule] }
	since  atomic.Int64 // when the first of the rebuilt ones was used
	number atomic.Int64 // of rebuilt rules since then
	told   atomic.Bool
}

func sameShape(a, b *limit.Rule) bool { return arith.Of(a).SameShape(arith.Of(b)) }

// See notes that a rule is used at now.
func (n *Names) See(rule *limit.Rule, now int64) {
	cell := &n.cells[arith.Of(rule).NameHash%nameCells]
	if e := cell.Load(); e != nil {
		if is := e.current.Load(); is == rule {
			return
		} else if sameShape(is, rule) {
			n.again(e, rule, now)
			return
		}
	}
	e := n.entry(rule)
	if e == nil {
		return
	}
	cell.Store(e)
	if sameShape(e.current.Load(), rule) {
		n.again(e, rule, now)
		return
	}
	if was, first := n.change(e, rule); first && n.OnConflict != nil {
		n.OnConflict(was, rule)
	}
}

// again notes that a rule of the present shape is used, and counts it if it is a new one with the numbers
// of an earlier one.
func (n *Names) again(e *named, rule *limit.Rule, now int64) {
	if e.current.Load() == rule || arith.Of(rule).MadeUp {
		return
	}
	all := e.copies.Load()
	if all == nil {
		all = new(copies)
		e.copies.CompareAndSwap(nil, all)
		all = e.copies.Load()
	}
	kind := rule.Limit() << 2
	if rule.IsDryRun() {
		kind |= 2
	}
	if rule.IsExact() {
		kind |= 1
	}
	c := &all.cells[uint64(kind)*0x9e3779b97f4a7c15>>(64-bits.Len(copyCells-1))]
	last := c.last.Load()
	if last == rule || c.before.Load() == rule {
		return
	}
	c.before.Store(last)
	c.last.Store(rule)
	if last == nil || last.Limit() != rule.Limit() || last.IsDryRun() != rule.IsDryRun() || last.IsExact() != rule.IsExact() {
		return
	}
	n.rebuilt.Add(1)
	if now-all.since.Load() > rebuiltWithin {
		all.since.Store(now)
		all.number.Store(0)
	}
	if all.number.Add(1) == manyRebuilt && !all.told.Swap(true) && n.OnRebuilt != nil {
		n.OnRebuilt(rule)
	}
}

// Rebuilt returns how often a new rule had the numbers of an earlier one.
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
