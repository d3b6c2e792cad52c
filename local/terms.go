package local

import (
	"math"
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
	perNS  int64 // of a funnel, see [limit.Ticks]; 0: a window
	one    int64
	room   int64 // the most, in ticks, that a funnel may hold that has room for one more
	turn   *season
	season uint32 // in which they were made
	source limit.Source
	rule   *limit.Rule
	_      [64]byte
}

const (
	// termsOfRules is how many terms a lodge remembers.
	termsOfRules = 256
	// termsSlack is how long, in ns, terms have been valid when they are made, at the most:
	// what other counters lend may have been asked a moment before.
	termsSlack = 1 << 24
	// windowSpan is how long terms of windows last at the most, and windowUnit, a number of
	// bits, in what unit their loans have times: of a word's time the higher half is until
	// when the window lends, and the lower one when it was asked last.
	windowSpan = 1 << (windowUnit + windowTime)
	windowUnit = 12 // 4 µs
	windowTime = (64 - pocketTime) / 2
	windowMask = 1<<windowTime - 1
)

// termsOf returns the terms of loans that begin with a check at last, nil if there cannot
// be any.
func (l *lodge) termsOf(rule *limit.Rule, src limit.Source, season uint32, last int64) *terms {
	at := &l.terms[(rule.Hash()+uint64(src))%termsOfRules]
	if t := at.Load(); t != nil && t.rule == rule && t.source == src && t.season == season && t.fits(last) {
		return t
	}
	if last < 0 || last > loanLatest {
		return nil
	}
	t := newTerms(rule, l.refresh, last)
	t.turn, t.season, t.source = l.season, season, src
	at.Store(t)
	return t
}

func newTerms(rule *limit.Rule, refresh, last int64) *terms {
	k := rule.Ticks()
	t := &terms{rule: rule, perNS: k.PerNS, one: k.One, room: k.Full - k.One}
	if k.PerNS != 0 {
		t.span = min(refresh, k.Most, pocketTimeMost/2/k.PerNS)
	} else {
		t.span = min(refresh, windowSpan)
	}
	t.base = max(last-min(termsSlack, t.span/8), 0)
	return t
}

// fits reports whether a loan that begins with a check at last has some time to go.
func (t *terms) fits(last int64) bool { return last >= t.base && last-t.base <= t.span/2 }

// word returns the word of a loan by t, without its number, of a counter that was asked at
// last. It reports false when there is no room for it.
func (t *terms) word(c *Counter, l loan, refused int64) (w uint64, left uint64, ok bool) {
	last, time := c.last-t.base, int64(0)
	left = min(uint64(l.left), pocketRefuses-1)
	switch {
	case l.refusal != 0:
		left, time = pocketRefuses, min(refused-t.base, pocketTimeMost)
		ok = time > last
	case t.perNS == 0:
		until := min((l.hold-t.base)>>windowUnit, windowMask)
		time = until<<windowTime | last>>windowUnit
		ok = until > last>>windowUnit
	default:
		ok = l.hold <= pocketTimeMost/2 // else a debt
		time = l.hold + last*t.perNS
	}
	return uint64(time)<<pocketTime | left<<pocketLeft, left, ok
}

// askedLast returns when a counter was asked last, by the word of its loan, as far as that
// tells: of a funnel, when it must have been asked at the latest.
func (t *terms) askedLast(w uint64) int64 {
	time := int64(w >> pocketTime)
	if t.perNS == 0 {
		return t.base + time&windowMask<<windowUnit
	}
	full := t.room + t.one
	if time <= full {
		return math.MinInt64
	}
	return t.base + (time-full)/t.perNS // it was not too full then
}

// termsTable is the latest terms of rules.
type termsTable [termsOfRules]atomic.Pointer[terms]
