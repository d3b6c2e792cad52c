package table

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Counter counts one key under one rule. Counters are made by a [Table] and live until it
// forgets them. All methods are safe for concurrent use.
//
// It does what a lease cannot: merge an answer of the authority, roll a window, reserve,
// change the rule. A check that a lease decides does not read the counter.
type Counter struct {
	law      atomic.Pointer[limit.Rule] // written under mu
	hash     uint64                     // immutable
	place    atomic.Pointer[Part]       // part of the link for the counter's shard; nil: nothing is shared
	home     *home                      // immutable; nil: grants no leases
	urgentAt uint32                     // pending units that make a report urgent
	short    [inlineKey]byte            // immutable: the key, if it fits
	keyBytes uint8                      // immutable: length of the key, or longKey or isBehind
	flags    flags                      // written under mu

	mu       sync.Mutex // protects all fields without another note
	modeBits int32      // mode of the link, as seen last
	dead     bool
	held     bool   // the policy holds it
	seen     uint32 // trace, when the sweep last looked
	lent     uint32 // units of the lease when granted; unitsRefused: a refusal; 0: no lease
	counted  uint32 // units of the lease that home.admitted has already

	entry        *entry // in the index; nil: its row was full. Writes need the lock of the shard, too
	refusesUntil int64  // ns; 0: not known to refuse. Valid until c is locked again
	last         int64  // latest now seen: time never runs backwards in a counter
	funnel       funnel // or a folded window

	// State of the exchange with the authority.
	freshAt                int64    // when the authority last answered, ns; before that, when c was made
	born                   int64    // when the newest unit it has told of was booked, by its clock; untold: no answer yet
	nextNormal, nextUrgent *Counter // owned by the stacks of the link
	more                   *more
}

func newCounter(key string, rule *limit.Rule, hash uint64, link *Link, home *home, now int64) *Counter {
	c := new(Counter)
	if len(key) > inlineKey && len(key) <= behindKey {
		c = &new(namedCounter).counter
		c.keyBytes = isBehind
	}
	c.hash, c.home, c.last = hash, home, math.MinInt64
	c.law.Store(rule)
	c.setKey(key)
	c.setMode(packMode(1, false))
	c.born = untold
	off, sure := int64(0), true
	if link != nil {
		var p *Part
		p, off, sure = link.home(key)
		c.place.Store(p)
		c.setUrgentAt(rule.Limit() / (2 * link.nodes.Load()))
		c.setMode(p.mode.Load())
		c.freshAt = max(now, 0)
	}
	switch rule.Algorithm() {
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		if c.more == nil && isFoldable(rule) {
			c.beginFolded(rule, now, off, sure)
		} else {
			c.with().window = newWindow(rule, now, off, sure)
		}
	case limit.AlgorithmSlidingLog:
		c.with().log = new(slidingLog)
	}
	return c
}

// matches reports whether c counts key under a rule of this name and algorithm.
func (c *Counter) matches(key string, rule *limit.Rule) bool {
	if r := c.law.Load(); r != rule && (r.Hash() != rule.Hash() || r.Algorithm() != rule.Algorithm() || r.Name() != rule.Name()) {
		return false
	}
	return c.Key() == key
}

// enterLocked prepares c for a question and returns the time to decide at.
func (c *Counter) enterLocked(now int64, rule *limit.Rule) int64 {
	now = max(now, c.last, 0)
	p := c.part()
	if p == nil {
		c.last = now
		if rule != c.law.Load() {
			c.adoptLocked(rule, now)
		}
		return now
	}
	if w := c.win(); w != nil && !w.sure {
		c.rebaseLocked(now) // while the time of the latest check is known
	}
	c.last = now
	if rule != c.law.Load() {
		c.adoptLocked(rule, now)
	}
	m := p.mode.Load()
	if c.is(quarantined) && !modeDegraded(m) {
		m = p.link.fallback.Load()
	}
	if m != c.mode() {
		c.switchModeLocked(m)
	}
	return now
}

// switchModeLocked changes what a unit weighs. A heavier weight applies at
// once, to unsynced units too. A lighter one waits for the authority's answer:
// what was admitted under the heavier one is not known to it yet.
func (c *Counter) switchModeLocked(m int64) {
	was, is := modeWeight(c.mode()), modeWeight(m)
	if is == 1 && was > 1 && c.unsyncedUnits() > 0 {
		c.setMode(packMode(was, modeDegraded(m)))
		return
	}
	c.setMode(m)
	if c.win() != nil {
		c.win().sum(c.rule(), is)
	} else if c.alg() == limit.AlgorithmFunnel {
		c.funnel.reweigh(c.rule(), was, is)
		c.funnel.capWeighted(c.rule(), c.last, is)
	}
}

// decideLocked admits or refuses n units, and books them if admitted.
func (c *Counter) decideLocked(now, n int64, book bool) bool {
	r, w := c.rule(), modeWeight(c.mode())
	funnel := r.Algorithm() == limit.AlgorithmFunnel
	if !funnel && c.win() != nil {
		c.rollLocked(now)
	}
	switch {
	case n == 0:
		return true
	case n > r.Limit(), w < 0:
		return false
	}
	cost := r.Weigh(n, w)
	switch {
	case funnel:
		allowed := c.funnel.take(r, now, n, cost, w, book)
		if allowed && book {
			c.indebtLocked(n)
		}
		return allowed
	case r.Algorithm() == limit.AlgorithmSlidingLog:
		return c.slog().take(r, now, n, book)
	}
	return c.win().take(r, now, n, cost, book)
}

// rollLocked moves the window on to now, by the known offset of the authority's
// clock, and counts the units that fell out unreported.
func (c *Counter) rollLocked(now int64) {
	if c.link() != nil {
		c.rebaseLocked(now)
	}
	if gone := c.win().roll(c.rule(), now, modeWeight(c.mode())); gone > 0 && c.link() != nil {
		c.link().expired.Add(gone)
	}
}

// rebaseLocked applies the known offset of the authority's clock to the window. If
// the window used a guess, its newest bucket is the one of the latest check.
func (c *Counter) rebaseLocked(now int64) {
	off, sure := c.part().clock()
	if c.freshAt < c.part().backAt.Load() {
		c.win().wentBack(c.rule(), c.part().backTo.Load())
	}
	if !sure || off == c.win().off && c.win().sure {
		return
	}
	if !c.win().sure && c.last != math.MinInt64 {
		now = min(now, c.last)
	}
	if c.win().rebase(c.rule(), now, off, c.part().slack.Load()) {
		c.win().sum(c.rule(), modeWeight(c.mode()))
	}
}

// describeLocked returns the whole answer to a check for n units at now.
func (c *Counter) describeLocked(now, n int64, allowed bool) limit.Result {
	w := modeWeight(c.mode())
	var res limit.Result
	switch c.alg() {
	case limit.AlgorithmFunnel:
		res = c.rule().FunnelResult(allowed, n, w, c.rule().Sub(c.funnel.view, arith.Span{NS: now}))
	case limit.AlgorithmSlidingLog:
		res = c.slog().describe(c.rule(), now, n, allowed)
	default:
		res = c.win().describe(c.rule(), now, n, w, allowed)
	}
	if w < 0 && !allowed && n <= c.rule().Limit() {
		res.Remaining, res.RetryAfter = 0, closedRetry
	}
	res.Source = c.sourceLocked()
	return res
}

// untold is born before the first answer of the authority.
const untold = -1

// check decides for n units. ok is false if c is dead: then nothing was consumed.
func (c *Counter) check(now, n int64, rule *limit.Rule) (allowed bool, src limit.Source, ok bool) {
	c.lock(now)
	if c.dead {
		c.mu.Unlock()
		return false, 0, false
	}
	isNew := c.last == math.MinInt64
	now = c.enterLocked(now, rule)
	allowed = c.decideLocked(now, n, true)
	if !allowed && n == 1 {
		c.refusedLocked(now)
	}
	src = c.sourceLocked()
	c.endCheckLocked(isNew)
	return allowed, src, true
}

// ask is check with the whole answer. Without book it consumes nothing.
func (c *Counter) ask(now, n int64, rule *limit.Rule, book bool) (res limit.Result, ok bool) {
	c.lock(now)
	if c.dead {
		c.mu.Unlock()
		return res, false
	}
	isNew := c.last == math.MinInt64
	now = c.enterLocked(now, rule)
	allowed := c.decideLocked(now, n, book)
	res = c.describeLocked(now, n, allowed)
	if !allowed && n == 1 {
		c.refusedLocked(now)
	}
	c.endCheckLocked(isNew)
	return res, true
}

// endCheckLocked hands c to the reconciler if there is something to report, grants a lease
// and unlocks c. Many new keys are asked once only: their window is folded, and their counter
// does not look used.
func (c *Counter) endCheckLocked(isNew bool) {
	p := c.part()
	wake := p != nil && c.noteLocked()
	c.grantLocked()
	if isNew {
		c.foldLocked()
		c.seen = c.trace()
	}
	c.mu.Unlock()
	if wake {
		p.link.signal()
	}
}

// worth says how much would be lost if a counter were forgotten.
type worth uint8

const (
	worthIdle    worth = iota // as if never used
	worthPartial              // used, but would not refuse one unit now
	worthDenying              // would refuse one unit now, or knows of a reset that others may have missed
	worthPinned               // holds units that the authority has not acknowledged
)

func (c *Counter) worthLocked(now int64) worth {
	defer c.refoldLocked(c.isFolded())
	now = max(now, c.last)
	if c.win() != nil {
		c.rollLocked(now)
	} else if c.link() != nil && c.alg() == limit.AlgorithmFunnel {
		c.drainLocked(now)
	}
	if c.is(inFlight) || c.unsyncedUnits() > 0 || c.link() != nil && c.tellsLocked(now) {
		return worthPinned
	}
	used, denies := false, false
	switch c.alg() {
	case limit.AlgorithmFunnel:
		used = c.funnel.view.NS >= now
		denies = !c.funnel.fits(c.rule(), now, c.rule().Cost(1))
	case limit.AlgorithmSlidingLog:
		c.slog().expire(c.rule(), now)
		used, denies = c.slog().used > 0, c.slog().used >= c.rule().Limit()
	default:
		used = c.win().newer > 0 || c.win().oldest > 0
		denies = !c.win().fits(c.rule(), now, 1)
	}
	switch {
	case denies, c.told().witness > now:
		return worthDenying
	case !used:
		return worthIdle
	}
	return worthPartial
}

// drainLocked drops the pending units of a funnel that has been empty for as long as
// a full one takes to run empty. In an outage they cannot be reported, and would keep
// the counter from ever being forgotten.
func (c *Counter) drainLocked(now int64) {
	f := &c.funnel
	if f.pend.units == 0 || c.is(inFlight) || !modeDegraded(c.part().mode.Load()) {
		return
	}
	if f.pend.plus(c.rule(), f.known, 1).NS < now-int64(c.rule().Horizon()) {
		c.link().expired.Add(f.pend.units)
		f.pend = part{}
		f.indebt(0)
	}
}

// unsyncedUnits returns the units that the authority has not acknowledged.
func (c *Counter) unsyncedUnits() int64 {
	if c.link() == nil {
		return 0
	}
	if !c.isFolded() && c.win() != nil {
		return c.win().pendUnits + c.win().sentUnits
	}
	return c.funnel.pend.units + c.funnel.under().sent.units
}

// pendUnits returns the units that the authority has not been sent.
func (c *Counter) pendUnits() int64 {
	if !c.isFolded() && c.win() != nil {
		return c.win().pendUnits
	}
	return c.funnel.pend.units
}

// adoptLocked goes on counting under another rule of the same name. If only the
// limit differs there is nothing to do. Otherwise what is counted is re-expressed in
// the new periods or buckets, rounded up, so that nothing is forgotten.
func (c *Counter) adoptLocked(rule *limit.Rule, now int64) {
	old := c.rule()
	c.win() // is unfolded by the rule that it was folded by
	c.law.Store(rule)
	if old.SameShape(rule) {
		return
	}
	w := modeWeight(c.mode())
	switch c.alg() {
	case limit.AlgorithmFunnel:
		c.funnel.reshape(old, rule, now)
		for _, b := range c.told().booked {
			b.begin, b.end = convert(old, rule, now, b.begin), convert(old, rule, now, b.end)
		}
	case limit.AlgorithmSlidingWindow, limit.AlgorithmFixedWindow:
		if gone := c.win().roll(old, now, w); gone > 0 && c.link() != nil {
			c.link().expired.Add(gone)
		}
		if gone := c.win().reshape(old, rule, now, w); gone > 0 && c.link() != nil {
			c.link().expired.Add(gone)
		}
	}
	if c.link() != nil {
		c.mark(outdated)
	}
}
