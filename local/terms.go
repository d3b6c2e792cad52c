package local

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What a loan is worth on its own is two words: so much memory less per key to wait for
// when there are many. All else that a check needs to know of it holds for many loans and
// is in the processor's own cache.

// terms are what loans of units by one rule have in common. They are immutable, and have
// their cache lines for themselves, because each check reads them.
type terms struct {
	base   int64 // ns; times of the loans count from here
	span   int64 // how long the loans last from then on, ns
	perNS  int64 // of a funnel, see [limit.Ticks]; 0: a window, or a rule that lends refusals alone
	coarse uint8 // a number of bits: loans of funnels have times in 1<<coarse ticks
	odd    bool  // not those of nearly all funnels: coarse is not 0, or of a window
	one    int64 // what a unit costs, in 1<<coarse ticks
	room   int64 // the most, in these, that a funnel may hold that has room for one more
	turn   *season
	season uint32 // in which they were made
	source limit.Source
	rule   *limit.Rule
	number uint64 // of the table, from 1 on
	_      [48]byte
}

const (
	// Of a loan's word the highest 48 bits are times, the next 12 are how many units are
	// left, and the lowest 4 are of the number of the loan.
	wordUnits, wordTime = 4, 16
	unitsMask           = 1<<(wordTime-wordUnits) - 1
	timeMost            = 1<<(64-wordTime) - 1
	numberMask          = 1<<wordUnits - 1
	// unitsRefused stands for the units of a loan that refuses, and no loan has as many.
	unitsRefused = unitsMask
	loanMost     = unitsRefused - 1
	// termsSlack is how long, in ns, terms have been valid when they are made, at the most:
	// what other counters lend may have been asked a moment before.
	termsSlack = 1 << 24
	// Of the time of a loan of a window the lower bits are when it was asked last, in ns: on
	// that depends when the units of its bucket leave. The others are until when the window
	// lends, in units of 1<<windowUnit ns. windowSpan is how long terms of windows last at the
	// most.
	windowTime = 33
	windowMask = 1<<windowTime - 1
	windowUnit = 2*windowTime - (64 - wordTime) // 0.26 ms
	windowSpan = 1 << windowTime
)

// Sources is how many [limit.Source] there is room for, more than there are.
const Sources = 8

func unitsOf(w uint64) uint32 { return uint32(w >> wordUnits & unitsMask) }
func refuses(w uint64) bool   { return unitsOf(w) == unitsRefused }

// coarseOf returns in what, a number of bits, the times of a full funnel have room in a
// word. It reports false if what a unit takes is no multiple of that.
func coarseOf(r *limit.Rule) (n int, ok bool) {
	k := r.Ticks()
	n = max(bits.Len64(uint64(k.Full))-bits.Len64(timeMost/2), 0)
	return n, bits.TrailingZeros64(uint64(k.One)) >= n
}

// hasRoomFor reports whether counters of a rule can lend.
func hasRoomFor(r *limit.Rule) bool {
	_, ok := coarseOf(r)
	return ok
}

const (
	// termsMost is how many terms a table of them has, termsWays at how many places those of
	// a rule can be, and termsLast for how long, in ns, they keep their numbers at the least.
	termsMost = 1 << 10
	termsWays = 4
	termsLast = 1_000_000_000
)

// termsTable is the terms of a lodge.
type termsTable struct {
	of       [termsMost]atomic.Pointer[terms] // the latest ones by rule
	byNumber [termsMost]atomic.Pointer[terms]
	mu       sync.Mutex // for writing
	last     uint64     // number
}

// numbered returns the terms of this number, nil if they have gone.
func (b *termsTable) numbered(n uint64) *terms {
	if t := b.byNumber[n%termsMost].Load(); t != nil && t.number == n {
		return t
	}
	return nil
}

// termsOf returns the terms of loans that begin with a check at last, nil if there cannot
// be any, or none for now.
func (l *lodge) termsOf(rule *limit.Rule, src limit.Source, season uint32, last int64) *terms {
	b := &l.terms
	if t := b.latest(rule, src, season, last); t != nil {
		return t
	}
	if last < 0 || last > loanLatest || !hasRoomFor(rule) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.latest(rule, src, season, last); t != nil {
		return t // somebody else has made them
	}
	t := newTerms(rule, l.refresh, last)
	t.turn, t.season, t.source = l.season, season, src
	if !b.addLocked(t) {
		return nil
	}
	return t
}

// latest returns the latest terms of a rule if they are good for a loan that begins with a
// check at last, and have their number still, or nil.
func (b *termsTable) latest(rule *limit.Rule, src limit.Source, season uint32, last int64) *terms {
	for i := range uint64(termsWays) {
		t := b.place(rule, src, i).Load()
		if t != nil && t.rule == rule && t.source == src && t.season == season && t.fits(last) && b.numbered(t.number) == t {
			return t
		}
	}
	return nil
}

func (b *termsTable) place(rule *limit.Rule, src limit.Source, way uint64) *atomic.Pointer[terms] {
	return &b.of[(rule.Hash()+uint64(src)+way)%termsMost]
}

// addLocked gives t a number and a place: the number of the oldest ones, unless these are in
// use and somebody makes a rule for each check.
func (b *termsTable) addLocked(t *terms) bool {
	at := &b.byNumber[(b.last+1)%termsMost]
	if old := at.Load(); old != nil && !old.over(t.season, t.base) && t.base-old.base < termsLast {
		return false
	}
	b.last++
	t.number = b.last
	at.Store(t)
	var place *atomic.Pointer[terms]
	for i := range uint64(termsWays) {
		is := b.place(t.rule, t.source, i)
		old := is.Load()
		if old == nil || old.rule == t.rule && old.source == t.source || old.over(t.season, t.base) {
			place = is
			break
		}
		if place == nil || old.number < place.Load().number {
			place = is
		}
	}
	place.Store(t)
	return true
}

func newTerms(rule *limit.Rule, refresh, last int64) *terms {
	k := rule.Ticks()
	n, _ := coarseOf(rule)
	t := &terms{rule: rule, perNS: k.PerNS, coarse: uint8(n), one: k.One >> n, room: (k.Full - k.One) >> n}
	t.odd = n > 0 || k.PerNS == 0
	if k.PerNS != 0 {
		t.span = min(refresh, k.Most, timeMost/2/k.PerNS<<n)
	} else {
		t.span = min(refresh, windowSpan)
	}
	// A multiple of the unit, so that what was rounded up on loan is not once more on the next.
	t.base = max(last-min(termsSlack, t.span/8), 0) &^ (1<<n - 1)
	return t
}

// fits reports whether a loan that begins with a check at last has some time to go.
func (t *terms) fits(last int64) bool { return last >= t.base && last-t.base <= t.span/2 }

// ceil converts ticks to the unit of loans' times, up: as if the clock went in such steps.
// Then as many units are admitted at one moment as without a loan, and over time none too
// early by more than one unit of time, as floor is the inverse.
func (t *terms) ceil(ticks int64) int64 { return (ticks + 1<<t.coarse - 1) >> t.coarse }

// floor is the least that ceil converts to a time. A funnel that lends again what it has got
// back lends the same, so that what is rounded does not add up.
func (t *terms) floor(time int64) (ticks int64) { return max(time<<t.coarse-(1<<t.coarse-1), 0) }

// over reports whether no loan by t answers any more.
func (t *terms) over(season uint32, now int64) bool {
	return t.season != season || uint64(now-t.base) >= uint64(t.span)
}

// word returns the word that a loan of what c has to lend begins with, but for its number. It reports false
// when there is no room for it.
func (t *terms) word(c *Counter, l loan) (w uint64, ok bool) {
	last, time := c.last-t.base, int64(0)
	switch {
	case l.refusal != 0:
		l.left, time = unitsRefused, min(l.refusal-t.base, timeMost)
		ok = time > last
	case t.perNS == 0:
		until := min(l.hold-t.base, windowSpan-1) >> windowUnit
		time = until<<windowTime | last
		ok = until<<windowUnit > last
	default:
		time = t.ceil(l.hold + last*t.perNS)
		ok = l.hold>>t.coarse <= timeMost/2 // else a debt
	}
	return uint64(time)<<wordTime | uint64(l.left)<<wordUnits, ok
}

// lasts reports whether loans by t answer at a time, in ns since its base.
func (t *terms) lasts(at int64) bool {
	return uint64(at) < uint64(t.span) && t.season == t.turn.n.Load()
}

// refuses is decide for a loan that refuses: it reports whether that still holds.
func (t *terms) refuses(w uint64, now int64) bool {
	at := now - t.base
	return at < int64(w>>wordTime) && t.lasts(at)
}

// decide decides for one unit at now by a loan of which w is the word, and what that is
// then if the unit is admitted. Level is what a funnel holds then, in ticks.
func (t *terms) decide(w uint64, now int64) (is uint64, level int64, v Verdict) {
	if refuses(w) {
		if t.refuses(w, now) {
			return 0, 0, Refused
		}
		return 0, 0, Unanswered
	}
	at := now - t.base
	if unitsOf(w) == 0 || !t.lasts(at) {
		return 0, 0, Unanswered
	}
	if t.odd {
		return t.decideOddly(w, at)
	}
	is, level, ok := t.fill(w, at*t.perNS)
	if !ok {
		return 0, 0, Unanswered
	}
	return is, level, Admitted
}

// fill admits one unit by a loan of a funnel, at a time in the unit of those of loans. It
// reports false when there is no room.
func (t *terms) fill(w uint64, at int64) (is uint64, level int64, ok bool) {
	time := max(int64(w>>wordTime), at)
	if level = time - at; level > t.room {
		return 0, 0, false
	}
	return uint64(time+t.one)<<wordTime | w&(1<<wordTime-1) - 1<<wordUnits, level + t.one, true
}

// decideOddly is decide for units of a window, and of a funnel of coarse times.
func (t *terms) decideOddly(w uint64, at int64) (is uint64, level int64, v Verdict) {
	if t.perNS != 0 {
		is, level, ok := t.fill(w, t.ceil(at*t.perNS))
		if !ok {
			return 0, 0, Unanswered
		}
		return is, level << t.coarse, Admitted
	}
	time := int64(w >> wordTime)
	if at >= time>>windowTime<<windowUnit {
		return 0, 0, Unanswered
	}
	time = max(time, time&^windowMask|at)
	return uint64(time)<<wordTime | w&(1<<wordTime-1) - 1<<wordUnits, 0, Admitted
}

// askedLast returns when a counter was asked last, by the word of its loan, as far as that
// tells: of a funnel, when it must have been asked at the latest.
func (t *terms) askedLast(w uint64) int64 {
	time := int64(w >> wordTime)
	if t.perNS == 0 {
		return t.base + time&windowMask
	}
	full := t.room + t.one
	if time <= full {
		return math.MinInt64
	}
	if t.coarse > 0 {
		time-- // it was rounded up
	}
	return t.base + (time-full)<<t.coarse/t.perNS // it was not too full then
}
