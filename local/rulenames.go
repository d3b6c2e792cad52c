package local

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Bounds of what is remembered of rules by name.
const (
	// maxNames is how many names are watched; rules of further ones are not compared.
	maxNames = 1024
	// maxShapes is how many rules of a name that have been replaced are remembered.
	maxShapes = 8
	// nameCells is the size of the cache in front of the names.
	nameCells = 256
)

// ruleNames notices that rules of one name which count differently (another algorithm, rate,
// period or number of buckets) are used side by side: one is used again after another. Each
// change re-expresses what is counted, or counts elsewhere, so that the limit does not hold.
// To go from one rule to another once, as a deployment does, is no conflict; nor are other
// limits, as different plans have.
//
// It is asked where a counter is, not by what answers from a slot or a handle: a counter
// takes these back when it is asked by another rule. Another algorithm has another counter;
// whoever makes it takes back what that of the first has lent, see [Table.createLocked].
type ruleNames struct {
	cells     [nameCells]atomic.Pointer[named]
	all       sync.Map // string → *named
	known     atomic.Int64
	conflicts atomic.Int64
	// told is called for the first conflict of each name, under locks: it must not block.
	told func(was, is *limit.Rule)
}

// named is what is known of the rules of one name.
type named struct {
	current atomic.Pointer[limit.Rule] // used last, or one that counts alike
	mixed   atomic.Bool                // there are rules of several algorithms

	mu     sync.Mutex
	before []*limit.Rule // used earlier, the latest last; one for each way to count
	told   bool
}

// see notes that a rule is used.
func (n *ruleNames) see(rule *limit.Rule) {
	cell := &n.cells[rule.NameHash()%nameCells]
	if e := cell.Load(); e != nil && e.current.Load().SameShape(rule) {
		return
	}
	e := n.entry(rule)
	if e == nil {
		return
	}
	cell.Store(e)
	if e.current.Load().SameShape(rule) {
		return
	}
	if was, first := n.change(e, rule); first && n.told != nil {
		n.told(was, rule)
	}
}

// entry returns what is known of the rules of a name, nil if there are too many names.
func (n *ruleNames) entry(rule *limit.Rule) *named {
	if e, ok := n.all.Load(rule.Name()); ok {
		return e.(*named)
	}
	if n.known.Load() >= maxNames {
		return nil
	}
	e := new(named)
	e.current.Store(rule)
	is, loaded := n.all.LoadOrStore(rule.Name(), e)
	if !loaded {
		n.known.Add(1)
	}
	return is.(*named)
}

// change notes that a rule is used after one that counts otherwise. It returns that one,
// and whether this is the first conflict of their name.
func (n *ruleNames) change(e *named, rule *limit.Rule) (was *limit.Rule, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if was = e.current.Load(); was.SameShape(rule) {
		return was, false // somebody else was faster
	}
	if was.Algorithm() != rule.Algorithm() {
		e.mixed.Store(true)
	}
	again := slices.IndexFunc(e.before, rule.SameShape)
	if again >= 0 {
		e.before = slices.Delete(e.before, again, again+1)
		n.conflicts.Add(1)
		first, e.told = !e.told, true
	} else if len(e.before) == maxShapes {
		e.before = slices.Delete(e.before, 0, 1)
	}
	e.before = append(e.before, was)
	e.current.Store(rule)
	return was, first
}

// others returns rules of the same name and of other algorithms.
func (n *ruleNames) others(rule *limit.Rule) (list []*limit.Rule) {
	e := n.cells[rule.NameHash()%nameCells].Load()
	if e == nil || !e.mixed.Load() || e.current.Load().Name() != rule.Name() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range append(slices.Clone(e.before), e.current.Load()) {
		if o.Algorithm() != rule.Algorithm() {
			list = append(list, o)
		}
	}
	return list
}

// unlend takes back what the counter of a key has lent, if it is at hand, so that the next
// check of it is seen.
func (t *Table) unlend(key string, rule *limit.Rule) {
	h := t.hashOf(key, rule)
	c := t.recent.Load().get(h)
	if c == nil || !c.matches(key, rule) {
		c = t.view.Load().get(h)
	}
	if c != nil && c.matches(key, rule) {
		c.lock()
		c.mu.Unlock()
	}
}
