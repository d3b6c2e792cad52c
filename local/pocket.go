package local

import (
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A slot is found by a key. Who has a handle of the key needs nothing to find: the
// counter lends its state to the handle itself, as it lends it to a slot, and a check is
// half a cache line, its terms, a clock and one swap, without a lock. When somebody else asks for the
// key, by its name or by another handle, they share a slot, see contest.

// pocket is what a handle has of the state of its counter. A loan is there as long as
// word has units: then terms that were read after it belong to it if it is still the same
// afterwards. A check needs nothing else of the handle, so that two of them share a cache
// line.
//
// The word holds a time. Of a funnel it is that at which it is empty, in ticks since the
// base of the terms (see [limit.Rule.Ticks]); when it was asked last is not known then,
// only when it must have been. A check that comes with an older reading may be decided as
// of that, for which it is never admitted sooner, but refused where the newest reading
// would have admitted it. Time that goes back would show, so that handles have pockets
// only under clocks that do not; what is left are goroutines that are interrupted between
// their reading and their check. Of a window it is two times, see windowSpan, and of a
// refusal when that ends, in ns since the base.
type pocket struct {
	word  atomic.Uint64
	terms atomic.Pointer[terms]
	*purse
}

// purse is what a handle has besides: what only those checks need that its counter has to
// answer. The key, its sign, the rule, the lodge and steady are immutable.
type purse struct {
	key    string
	sign   sign // of a key that is no longer than mostMiddle
	rule   *limit.Rule
	lodge  *lodge                  // nil: nobody can be asked
	c      atomic.Pointer[Counter] // nil: look it up
	slot   atomic.Pointer[slot]    // that has answered for c, maybe; nil: none has
	steady bool                    // the clock never goes back; if not, there is never a loan
	loans  uint8                   // how many there were, which wraps; of who holds held
	held   atomic.Bool             // a counter has lent, or is about to
	// refused is whether the latest check of the handle's slot was: then nobody is going to
	// write to that.
	refused atomic.Bool
	lent    uint32        // how many units; of who holds held
	listed  uint32        // place in the list of its group, which protects it
	tried   atomic.Uint32 // see trial
}

// Verdict is what comes of a check.
type Verdict uint8

const (
	// Unanswered is a check of which nobody can tell yet: nothing has happened.
	Unanswered Verdict = iota
	// Refused is one that has consumed nothing.
	Refused
	// Admitted is one that has consumed what it asked for.
	Admitted
)

// ask decides for one unit at now. Level is what a funnel holds then, in ticks.
func (p *pocket) ask(now int64) (level int64, src limit.Source, v Verdict) {
	for {
		w := p.word.Load()
		if unitsOf(w) == 0 {
			return 0, 0, Unanswered
		}
		t := p.terms.Load()
		is, level, v := t.decide(w, now)
		switch {
		case v == Unanswered:
			return 0, 0, Unanswered
		case v == Refused && p.word.Load() == w, v == Admitted && p.word.CompareAndSwap(w, is):
			return level, t.source, v
		}
	}
}

// answer is ask at what a clock shows, which is not read when there is no loan. Nearly all checks are of
// units of a funnel; they are answered here in few steps.
func (p *pocket) answer(clock clock.Clock) (v Verdict, src limit.Source) {
	w := p.word.Load()
	if unitsOf(w) == 0 {
		return Unanswered, 0
	}
	now := int64(clock.Now())
	t := p.terms.Load()
	if refuses(w) {
		if t.refuses(w, now) && p.word.Load() == w {
			return Refused, t.source
		}
	} else if at := now - t.base; t.lasts(at) && !t.odd {
		if is, _, ok := t.fill(w, at*t.perNS); ok && p.word.CompareAndSwap(w, is) {
			return Admitted, t.source
		}
	}
	_, src, v = p.ask(now)
	return v, src
}

// peek returns what a funnel holds at now, in ticks, if one unit more would be admitted.
func (p *pocket) peek(now int64) (level int64, src limit.Source, ok bool) {
	w := p.word.Load()
	if unitsOf(w) == 0 {
		return 0, 0, false
	}
	t := p.terms.Load()
	_, level, v := t.decide(w, now)
	return level - t.one<<t.coarse, t.source, v == Admitted && p.word.Load() == w && p.terms.Load() == t
}

// borrowLocked lends to p what c, which is locked, has to lend by t, of which w is the first
// word, and reports whether it did: not when somebody else was asking for the key.
func (p *pocket) borrowLocked(c *Counter, t *terms, w uint64, now int64) bool {
	if p.isContested(now) || !p.held.CompareAndSwap(false, true) {
		return false
	}
	p.lent = unitsOf(w)
	p.loans++
	w |= uint64(p.loans) & numberMask
	p.terms.Store(t)
	c.with().pocket = p
	if refuses(w) {
		p.word.Store(w)
		return true
	}
	c.bookLoanLocked(int64(p.lent)) // what is left of them comes off again
	c.brisk = 0
	p.lodge.pockets(c).open(p, w)
	return true
}

// returnLocked gives c, which is locked and has lent to p, back what it has lent.
func (p *pocket) returnLocked(c *Counter) {
	c.more.pocket = nil
	defer p.held.Store(false)
	if p.lent == unitsRefused {
		p.word.Store(0)
		return
	}
	c.takeBackLocked(p.terms.Load(), p.lodge.pockets(c).settle(p), p.lent)
}

// claim locks c in order to ask it for n units by p. When c has lent to p since that was
// asked, by a check that came first, p is asked once more, and unless that is Unanswered c
// is not locked: who takes back at once what another has borrowed keeps all from borrowing.
func (p *pocket) claim(c *Counter, n, now int64) (v Verdict, src limit.Source) {
	c.mu.Lock()
	if c.lentTo() != p {
		return Unanswered, 0
	}
	if n == 1 {
		if _, src, v = p.ask(max(now, p.terms.Load().base)); v != Unanswered {
			c.mu.Unlock()
			return v, src
		}
	}
	c.unsettleLocked()
	return Unanswered, 0
}

// contestLocked tells the pocket that c has lent to, if it has, that somebody else asks.
func (c *Counter) contestLocked(now int64) {
	if p := c.lentTo(); p != nil {
		p.contest(now)
	}
}

// trial is when a pocket last took the loan of its counter away from a slot, or somebody
// else took its own: then the lowest bit is set. Each could take the other's loan away for
// ever; so once in trialLasts a pocket tries, and if it was in vain they share the slot.
// Above that bit it counts trialLasts of the clock, from 1 on; 0: never.
type trial uint32

// trialLasts is in ns: 1.07 s.
const trialLasts = 1 << 30

func trialAt(now int64, contested bool) trial {
	t := trial(now/trialLasts+1) << 1
	if contested {
		t |= 1
	}
	return t
}

// over reports whether the trial is a while ago.
func (t trial) over(now int64) bool { return t == 0 || trialAt(now, false)>>1-t>>1 > 1 }

// contest notes that somebody else asks for the counter of p.
func (p *pocket) contest(now int64) { p.tried.Store(uint32(trialAt(now, true))) }

func (p *pocket) isContested(now int64) bool {
	t := trial(p.tried.Load())
	return t&1 != 0 && !t.over(now)
}

// mayTry reports whether p may take the loan of its counter away from a slot, and if so
// counts that as a trial.
func (p *pocket) mayTry(now int64) bool {
	if t := p.tried.Load(); trial(t).over(now) {
		return p.tried.CompareAndSwap(t, uint32(trialAt(now, false)))
	}
	return false
}

// pocketGroup has the pockets of a part of the counters that have units on loan, so that
// what they have admitted can be counted at any time.
type pocketGroup struct {
	mu       sync.Mutex // taken after that of a counter
	out      []*pocket
	admitted [Sources]int64 // units, by pockets that are not out any more
	_        [32]byte
}

// pocketGroups is how many of them a lodge has.
const pocketGroups = 32

// pockets returns the group of pockets that c lends to.
func (l *lodge) pockets(c *Counter) *pocketGroup { return &l.groups[c.hash%pocketGroups] }

// open begins a loan with its first word.
func (g *pocketGroup) open(p *pocket, w uint64) {
	g.mu.Lock()
	p.listed = uint32(len(g.out))
	g.out = append(g.out, p)
	p.word.Store(w)
	g.mu.Unlock()
}

// settle ends a loan, counts what was admitted and returns the last word.
func (g *pocketGroup) settle(p *pocket) (w uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w = p.word.Swap(0)
	g.admitted[p.terms.Load().source] += p.taken(w)
	end := len(g.out) - 1
	last := g.out[end]
	g.out[p.listed], last.listed = last, p.listed
	g.out[end] = nil
	g.out = g.out[:end]
	return w
}

// taken returns how many units of a loan are gone when w is left of it.
func (p *pocket) taken(w uint64) int64 { return int64(p.lent) - int64(unitsOf(w)) }

// add adds to n the units that pockets of the group have admitted.
func (g *pocketGroup) add(n *[Sources]int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range n {
		n[i] += g.admitted[i]
	}
	for _, p := range g.out {
		n[p.terms.Load().source] += p.taken(p.word.Load())
	}
}
