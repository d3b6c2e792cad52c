package local

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Counter counts one key under one rule. Counters are made by a [Table] and
// live until it forgets them; one that has been replaced is dead and refers
// to its heir. All methods are safe for concurrent use.
//
// A mutex rather than a compare-and-swap loop guards the state: under
// contention on one key it is the cheaper of the two (56 against 72 ns with
// two goroutines), and it lets a check and its bookkeeping be one step.
//
// With many keys it is memory that a check waits for. So the whole is three cache
// lines, of which a check of a funnel reads two and writes one. What funnels rarely
// need is in more, and so is a window unless it is folded; a longer key comes right
// behind, see namedCounter.
type Counter struct {
	// First line, hardly ever written: whose counter it is.
	law      atomic.Pointer[limit.Rule] // written under mu
	hash     uint64                     // immutable
	place    atomic.Pointer[Part]       // of the link: what holds for the counter's shard; nil: nothing is shared
	denied   atomic.Int64               // see denies; written under mu
	urgentAt uint32                     // pending units that make a report urgent
	short    [inlineKey]byte            // immutable: the key, if it is not longer
	keyBytes uint8                      // immutable: how long it is, or where it is; see Key
	flags    flags                      // written under mu
	slot     atomic.Pointer[tenancy]    // of the slot that answers instead, see lodge; nil: none. Written under mu and the lock of the tenancy

	// Second line: what a check decides on.
	mu       sync.Mutex   // protects all that is not said to be otherwise
	modeBits atomic.Int32 // of the link, as seen last; written under mu
	epoch    uint8        // of the table, when the cache was told of the latest use
	dead     bool
	brisk    brisk  // what the next check may be answered by
	last     int64  // latest now seen; time never runs backwards in here
	funnel   funnel // or a folded window

	// Third line, from known in funnel on: what there is between us and the
	// authority.
	freshAt                int64    // when it last answered, ns; before it has, when c was made
	born                   int64    // when the newest of what it has told was booked, in its time; untold: it has told nothing
	nextNormal, nextUrgent *Counter // owned by the link's stacks
	more                   *more
}

func newCounter(key string, rule *limit.Rule, hash uint64, link *Link, now int64) *Counter {
	c := new(Counter)
	if len(key) > inlineKey && len(key) <= behindKey {
		c = &new(namedCounter).counter
		c.keyBytes = isBehind
	}
	c.hash, c.last = hash, math.MinInt64
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

// matches reports whether c counts key under a rule of this name.
func (c *Counter) matches(key string, rule *limit.Rule) bool {
	if r := c.law.Load(); r != rule && (r.Hash() != rule.Hash() || r.Algorithm() != rule.Algorithm() || r.Name() != rule.Name()) {
		return false
	}
	return c.Key() == key
}

// lock locks c for anything that may change what a check is answered.
func (c *Counter) lock() {
	c.mu.Lock()
	c.unsettleLocked()
}

// unsettleLocked takes back what checks may be answered by without looking at all.
func (c *Counter) unsettleLocked() {
	if d := c.slot.Load(); d != nil {
		d.mu.Lock()
		d.returnLocked(c)
		d.mu.Unlock()
	}
	if p := c.lentTo(); p != nil {
		p.returnLocked(c)
	}
	c.brisk = 0
	if c.denied.Load() != 0 {
		c.denied.Store(0)
	}
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

// rollLocked moves the window on to now, by what is known of the authority's
// clock, and counts what fell out unreported.
func (c *Counter) rollLocked(now int64) {
	if c.link() != nil {
		c.rebaseLocked(now)
	}
	if gone := c.win().roll(c.rule(), now, modeWeight(c.mode())); gone > 0 && c.link() != nil {
		c.link().expired.Add(gone)
	}
}

// rebaseLocked takes over what is known of the authority's clock. The newest
// bucket of a window that went by a guess is the one of the latest check.
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

// describeLocked puts an answer into words.
func (c *Counter) describeLocked(now, n int64, allowed bool) limit.Result {
	w := modeWeight(c.mode())
	var res limit.Result
	switch c.alg() {
	case limit.AlgorithmFunnel:
		res = c.rule().FunnelResult(allowed, n, w, c.rule().Sub(c.funnel.view, limit.Span{NS: now}))
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

// untold is the birth of what the authority has not told yet.
const untold = -1

// manner says how a counter was found by a check.
type manner uint8

const (
	well   manner = iota
	steady        // it may as well answer from a slot, see lodge
	remind        // the cache should hear that it is used, see Table.remind
	gone          // it is dead: look the key up again
)

// usedLocked notes a check in an epoch of the table.
func (c *Counter) usedLocked(epoch uint8) manner {
	if c.epoch != epoch {
		c.epoch = epoch
		return remind
	}
	return well
}

// check decides for n units, in an epoch of the table.
func (c *Counter) check(now, n int64, rule *limit.Rule, epoch uint8) (allowed bool, src limit.Source, how manner) {
	c.mu.Lock()
	return c.checkHeld(now, n, rule, epoch)
}

// checkHeld is check of a counter that is locked. It unlocks c.
func (c *Counter) checkHeld(now, n int64, rule *limit.Rule, epoch uint8) (allowed bool, src limit.Source, how manner) {
	if b := c.brisk; n == 1 && c.takeBrisklyLocked(now, rule, epoch) {
		c.brisk = b.again()
		c.mu.Unlock()
		return true, b.source(), b.manner()
	}
	return c.checkLocked(now, n, rule, epoch)
}

// checkLocked is check at length. It unlocks c.
func (c *Counter) checkLocked(now, n int64, rule *limit.Rule, epoch uint8) (allowed bool, src limit.Source, how manner) {
	c.contestLocked(now)
	c.unsettleLocked()
	if c.dead {
		c.mu.Unlock()
		return false, 0, gone
	}
	isNew := c.last == math.MinInt64
	now = c.enterLocked(now, rule)
	allowed = c.decideLocked(now, n, true)
	src, how = c.sourceLocked(), c.usedLocked(epoch)
	if !allowed && n == 1 {
		c.denyLocked(now, src)
	}
	p := c.part()
	wake := p != nil && c.noteLocked()
	c.brisk = c.briskLocked(allowed && n > 0, src)
	if isNew || how == remind {
		c.foldLocked() // the first check for a while, and maybe the last
	}
	c.mu.Unlock()
	if wake {
		p.link.signal()
	}
	return allowed, src, how
}

// ask is check with the whole answer. Unless it is to book, it consumes nothing.
func (c *Counter) ask(now, n int64, rule *limit.Rule, book bool, epoch uint8) (res limit.Result, how manner) {
	c.mu.Lock()
	return c.askHeld(now, n, rule, book, epoch)
}

// askHeld is ask of a counter that is locked. It unlocks c.
func (c *Counter) askHeld(now, n int64, rule *limit.Rule, book bool, epoch uint8) (res limit.Result, how manner) {
	b := c.brisk
	if c.law.Load() != rule {
		b = 0 // a new rule; and who makes one for each check shall have no slot
	}
	if book {
		c.contestLocked(now)
	}
	c.unsettleLocked()
	if c.dead {
		c.mu.Unlock()
		return res, gone
	}
	isNew := c.last == math.MinInt64
	now = c.enterLocked(now, rule)
	allowed := c.decideLocked(now, n, book)
	res, how = c.describeLocked(now, n, allowed), c.usedLocked(epoch)
	if !allowed && n == 1 && book {
		c.denyLocked(now, res.Source)
	}
	p := c.part()
	wake := p != nil && c.noteLocked()
	if n == 1 && book && how == well && takesFromSlots(rule) {
		c.brisk, how = b.after(c.briskLocked(allowed, res.Source))
	}
	if isNew || how == remind {
		c.foldLocked()
	}
	c.mu.Unlock()
	if wake {
		p.link.signal()
	}
	return res, how
}

// worth says how much would be lost if a counter were forgotten.
type worth uint8

const (
	worthIdle    worth = iota // as if never used
	worthPartial              // a level that does not deny
	worthDenying              // would refuse one unit now, or knows of a reset that others may have missed
	worthPinned               // holds units the authority has not acknowledged
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

// drainLocked gives up the pending units of a funnel that has run empty, and
// stayed so for as long as a full one needs to: in an outage, when nobody can be
// told of them any more, they would keep the counter from being forgotten.
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

// absorbLocked lets c take over the state of d, another counter of the same
// key, and marks d dead. Both are locked. It happens when a counter that the
// cache has evicted finds that its key has been created anew meanwhile.
func (c *Counter) absorbLocked(d *Counter, now int64) {
	d.dead, d.with().heir = true, c
	now = max(now, c.last, d.last)
	c.last = now
	if d.rule() != c.rule() && !d.rule().SameShape(c.rule()) {
		d.adoptLocked(c.rule(), now)
	}
	w := modeWeight(c.mode())
	switch c.alg() {
	case limit.AlgorithmFunnel:
		c.funnel.absorb(c.rule(), &d.funnel, w)
	case limit.AlgorithmSlidingLog:
		c.slog().absorb(d.slog())
	default:
		c.rollLocked(now)
		d.rollLocked(now)
		c.win().absorb(c.rule(), d.win(), now, w)
	}
	if c.link() == nil {
		return
	}
	c.note(voided, c.is(voided) && c.is(inFlight) || d.is(voided) && d.is(inFlight))
	c.setGen(max(c.gen(), d.gen()))
	c.setHeard(max(c.heard(), d.heard()))
	c.setBackGen(min(c.backGen(), d.backGen()))
	c.note(inFlight, c.is(inFlight) || d.is(inFlight))
	c.note(raising, c.is(raising) || d.is(raising))
	c.note(outdated, c.is(outdated) || d.is(outdated))
	if c.born == untold {
		c.freshAt = d.freshAt
	}
	c.born, c.freshAt = max(c.born, d.born), max(c.freshAt, d.freshAt)
	c.setWitness(max(c.told().witness, d.told().witness))
	if !c.is(inNormal) && c.tellsLocked(now) && c.pushNormalLocked() {
		c.link().signal()
	}
}

// adoptLocked goes on counting under another rule of the same name. A new
// limit needs nothing; new periods or buckets re-express what is counted,
// rounding up, so that nothing is forgotten.
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
