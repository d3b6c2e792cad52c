package table

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// remembered is what the table remembers of a key that has no counter, in 16 bytes.
type remembered struct {
	id    uint64 // upper bits of the fingerprint of the key, the number of its rule, and High of the trace; 0: none
	trace uint64 // Bits of the trace
}

// traceOf returns the trace of what is remembered.
func (is remembered) traceOf() algorithm.Trace {
	return algorithm.Trace{Bits: is.trace, High: uint8(is.id)}
}

// rule returns the number of the rule.
func (is remembered) rule() uint64 { return is.id >> highBits & ruleMask }

const (
	// The lower bits of an id are High. Above it is the number of the rule: ruleBits are for how many
	// rules of different names and numbers traces are kept. The other 44 bits are of the fingerprint: a
	// new key finds the trace of another with a chance of about 1 in 2²⁹.
	highBits, ruleBits = 8, 12
	lowBits            = highBits + ruleBits
	ruleMask           = 1<<ruleBits - 1
	// setSize is the number of places in a set.
	setSize = 16
)

// traces are the remembered keys of one shard, protected by its lock. They are sets of places. A key is in
// one of two sets, which its fingerprint selects: the one that was emptier. If both are full, another key
// is moved to its other set. So nearly all places can be taken before keys compete for one.
type traces struct {
	sets []traceSet // as many as a power of two
	most int        // largest number of sets
	used int        // places that are taken
	hand int        // where the sweep continues
}

// traceSet has the ids apart, so that a key that is not remembered costs four lines of memory.
type traceSet struct {
	ids    [setSize]uint64
	traces [setSize]uint64
}

// place is a place in a set; without a set it is none.
type place struct {
	set *traceSet
	i   int
}

func (p place) get() remembered   { return remembered{p.set.ids[p.i], p.set.traces[p.i]} }
func (p place) put(is remembered) { p.set.ids[p.i], p.set.traces[p.i] = is.id, is.trace }

// pair returns the two sets of a fingerprint, or of an id: the bits that select them are in both.
func (ts *traces) pair(print uint64) [2]*traceSet {
	mask := uint64(len(ts.sets) - 1)
	return [2]*traceSet{&ts.sets[print>>lowBits&mask], &ts.sets[print>>(lowBits+22)&mask]}
}

// find returns the place of a key.
func (ts *traces) find(print uint64) (none place) {
	if ts.used == 0 {
		return none
	}
	for _, set := range ts.pair(print) {
		for i, id := range &set.ids {
			if (id^print)>>lowBits == 0 && id != 0 {
				return place{set, i}
			}
		}
	}
	return none
}

func (ts *traces) has(print uint64) bool { return ts.find(print).set != nil }

// free returns a free place in the emptier of the two sets of an id.
func (ts *traces) free(id uint64) (p place) {
	most := 0
	for _, set := range ts.pair(id) {
		first, n := 0, 0
		for i, id := range &set.ids {
			if id == 0 {
				first = i
				n++
			}
		}
		if n > most {
			p, most = place{set, first}, n
		}
	}
	return p
}

// clear frees a place in the two full sets of an id: it moves a key of theirs to the other set of that key.
func (ts *traces) clear(id uint64) (none place) {
	for _, set := range ts.pair(id) {
		for i, id := range &set.ids {
			if other := ts.free(id); other.set != nil {
				p := place{set, i}
				other.put(p.get())
				return p
			}
		}
	}
	return none
}

// memory is what the traces of all shards share: their rules, and what they count.
type memory struct {
	mu    sync.RWMutex
	index map[ruleID]int
	rules []*sharedRule // by number, less 1
	cells [64]atomic.Pointer[numbered]

	live      atomic.Int64 // remembered keys, including those that count no more until the sweep
	room      int64
	displaced atomic.Int64 // see [Stats].Displaced
	recalled  atomic.Int64 // see [Stats].Recalled
}

// ruleID is what two rules have in common whose traces can be read by either.
type ruleID struct {
	name  string
	alg   arith.Algorithm
	limit int64
	shape uint32
}

func idOf(rule *limit.Rule) ruleID {
	r := arith.Of(rule)
	return ruleID{r.Name, arith.Of(rule).Algorithm, r.Limit, r.ShapeHash()}
}

// sharedRule is a rule and the number of places that refer to it.
type sharedRule struct {
	rule *limit.Rule
	refs atomic.Int64
}

func newMemory(room int) *memory { return &memory{index: map[ruleID]int{}, room: int64(room)} }

// numbered is a rule and its number, as it was found last. There is a cell for each hash of a name.
type numbered struct {
	rule   *limit.Rule
	shared *sharedRule
	number int
}

// acquire returns the number of a rule for one more place; 0: as many rules as possible are in use.
func (m *memory) acquire(rule *limit.Rule) uint64 {
	cell := &m.cells[arith.Of(rule).NameHash%uint64(len(m.cells))]
	m.mu.RLock()
	if c := cell.Load(); c != nil && c.rule == rule && m.rules[c.number-1] == c.shared {
		c.shared.refs.Add(1)
		m.mu.RUnlock()
		return uint64(c.number)
	}
	id := idOf(rule)
	k := m.index[id]
	if k != 0 {
		m.rules[k-1].refs.Add(1)
		cell.Store(&numbered{rule, m.rules[k-1], k})
	}
	m.mu.RUnlock()
	if k == 0 {
		k = m.add(id, rule)
	}
	return uint64(k)
}

// add gives a number to a new rule: that of a rule to which no place refers any more, if all are taken.
func (m *memory) add(id ruleID, rule *limit.Rule) (k int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k = m.index[id]; k == 0 {
		if len(m.rules) < ruleMask {
			m.rules = append(m.rules, nil)
			k = len(m.rules)
		} else if k = 1 + slices.IndexFunc(m.rules, func(r *sharedRule) bool { return r.refs.Load() == 0 }); k == 0 {
			return 0
		} else {
			delete(m.index, idOf(m.rules[k-1].rule))
		}
		m.index[id], m.rules[k-1] = k, &sharedRule{rule: rule}
	}
	m.rules[k-1].refs.Add(1)
	return k
}

// ruleOf returns the rule of a trace.
func (m *memory) ruleOf(is remembered) *sharedRule {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.rules[is.rule()-1]
}

// lost forgets what was in a place.
func (m *memory) lost(ts *traces, was remembered) {
	m.ruleOf(was).refs.Add(-1)
	m.live.Add(-1)
	ts.used--
}

// hasEnded reports whether nothing of a trace counts any more.
func (m *memory) hasEnded(is remembered, now int64) bool {
	return is.traceOf().Ended(m.ruleOf(is).rule, now)
}

// share returns how much of its limit a trace counts as, see [algorithm.Trace.ShareLeft].
func (m *memory) share(is remembered, now int64) int {
	return is.traceOf().ShareLeft(m.ruleOf(is).rule, now)
}

// look returns what is remembered of a key, and where. rule is nil if nothing counts any more.
func (m *memory) look(ts *traces, print uint64, now int64) (p place, rule *limit.Rule, t algorithm.Trace) {
	if p = ts.find(print); p.set == nil {
		return p, nil, t
	}
	is := p.get()
	if rule, t = m.ruleOf(is).rule, is.traceOf(); t.ShareLeft(rule, now) == 0 {
		rule = nil
	}
	return p, rule, t
}

// recall is look for a key that gets a counter: what is remembered of it is forgotten.
func (m *memory) recall(ts *traces, print uint64, now int64) (*limit.Rule, algorithm.Trace) {
	p, rule, t := m.look(ts, print, now)
	if p.set != nil {
		m.lost(ts, p.get())
		p.put(remembered{})
	}
	if rule != nil {
		m.recalled.Add(1)
	}
	return rule, t
}

// remember keeps the trace of a key that has none. If it finds no place, the key that has used the
// smallest share of its limit goes, of equal ones a random one. It never is the one that ends first:
// otherwise an attacker could free his own short limit by a flood of keys with longer ones.
func (m *memory) remember(ts *traces, print uint64, rule *limit.Rule, t algorithm.Trace, now int64) {
	k := m.acquire(rule)
	if k == 0 {
		m.displaced.Add(1)
		return
	}
	if ts.used >= len(ts.sets)*setSize*3/4 && len(ts.sets) < ts.most { // also if there are none yet
		m.grow(ts, now)
	}
	m.live.Add(1)
	ts.used++
	m.enter(ts, remembered{print&^(1<<lowBits-1) | k<<highBits | uint64(t.High), t.Bits}, now)
}

// enter finds a place for a trace, which is counted already.
func (m *memory) enter(ts *traces, is remembered, now int64) {
	if p := ts.free(is.id); p.set != nil {
		p.put(is)
		return
	}
	victim, least, equal := place{}, m.share(is, now), 1
	pair := ts.pair(is.id)
	for k, set := range pair {
		if k == 1 && set == pair[0] {
			break
		}
		for i := range set.ids {
			p := place{set, i}
			switch share := m.share(p.get(), now); {
			case share == 0: // it counts no more
				m.lost(ts, p.get())
				p.put(is)
				return
			case share < least:
				victim, least, equal = p, share, 1
			case share == least:
				if equal++; rand.IntN(equal) == 0 {
					victim = p
				}
			}
		}
	}
	if p := ts.clear(is.id); p.set != nil {
		p.put(is)
		return
	}
	m.displaced.Add(1)
	if victim.set == nil {
		m.lost(ts, is)
		return
	}
	m.lost(ts, victim.get())
	victim.put(is)
}

// grow doubles the number of sets, and forgets what counts no more.
func (m *memory) grow(ts *traces, now int64) {
	was := ts.sets
	ts.sets, ts.hand = make([]traceSet, max(1, min(2*len(was), ts.most))), 0
	for i := range was {
		for j, id := range &was[i].ids {
			if id == 0 {
				continue
			}
			is := place{&was[i], j}.get()
			if m.hasEnded(is, now) {
				m.lost(ts, is)
			} else {
				m.enter(ts, is, now)
			}
		}
	}
}

// sweep forgets the keys of the next few sets that count no more. It reports whether there are more
// sets in this shard.
func (m *memory) sweep(ts *traces, sets int, now int64) (more bool) {
	end := min(ts.hand+sets, len(ts.sets))
	for ; ts.hand < end; ts.hand++ {
		for i, id := range &ts.sets[ts.hand].ids {
			p := place{&ts.sets[ts.hand], i}
			if id != 0 && m.hasEnded(p.get(), now) {
				m.lost(ts, p.get())
				p.put(remembered{})
			}
		}
	}
	if end < len(ts.sets) {
		return true
	}
	if ts.hand = 0; ts.used == 0 {
		ts.sets = nil
	}
	return false
}
