package counter

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
)

// A counter that is not locked has granted a lease to its entry, if it can. Locking it revokes the
// lease first. So all other code works on the counter alone and need not handle leases.

// Survey counts the states of counters.
type Survey struct {
	Queued      int64 // waiting for their report
	Quarantined int64 // Redis' copy of the key is broken
	Oldest      int64 // when the oldest unacknowledged unit was admitted, ns; 0: none
}

// Survey adds c to s, and counts what its lease has admitted so far.
func (c *Counter) Survey(now int64, s *Survey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.usedLocked()
	if used > int64(c.counted) {
		c.group.count(c.entry.lease.Load(), used-int64(c.counted))
		c.counted = uint16(used)
	}
	if c.link() == nil || c.dead {
		return
	}
	if c.is(inNormal | inUrgent) {
		s.Queued++
	}
	if c.is(quarantined) {
		s.Quarantined++
	}
	if c.dateLocked(max(now, c.last), used); c.since != 0 && (s.Oldest == 0 || c.since < s.Oldest) {
		s.Oldest = c.since
	}
}

// Revoke ends the lease of c, if it has one. c grants no lease before its next call, so it decides
// that call itself.
func (c *Counter) Revoke(now int64) {
	c.lock(now)
	c.mark(revoked)
	c.mu.Unlock()
}

// lock locks c and revokes its lease. now is the time, as far as the caller knows it.
func (c *Counter) lock(now int64) {
	c.mu.Lock()
	c.revokeLocked(now)
}

// unlock grants a lease, if c can, and unlocks c.
func (c *Counter) unlock() {
	c.grantLocked()
	c.mu.Unlock()
}

// unlockAndNote queues c for the reconciler if there is something to report, and unlocks it.
func (c *Counter) unlockAndNote() {
	wake := c.link() != nil && c.noteLocked()
	c.unlock()
	if wake {
		c.link().signal()
	}
}

// revokeLocked ends the lease and adds to c what the lease has admitted.
func (c *Counter) revokeLocked(now int64) {
	c.refusesUntil = 0
	granted := uint32(c.granted)
	if granted == 0 {
		return
	}
	w := c.entry.word.And(generationMask)
	used := granted - unitsOf(w)
	counted := uint32(c.counted)
	c.asked = c.asked || used != uint32(c.seen)
	c.granted, c.counted, c.seen = 0, 0, 0
	if granted == unitsRefused || used == 0 {
		return
	}
	l := c.entry.lease.Load()
	c.group.count(l, int64(used-counted))
	c.last = max(c.last, l.askedLast(w))
	// The state has not changed since the grant: every change revokes the lease first.
	c.state().Spend(c.rule(), now, c.last, int64(used), l.emptyAt(w))
	c.indebtLocked(int64(used))
}

// usedLocked returns how many units the lease has admitted so far.
func (c *Counter) usedLocked() int64 {
	if c.granted == 0 || c.granted == unitsRefused {
		return 0
	}
	return int64(uint32(c.granted) - unitsOf(c.entry.word.Load()))
}

// grantLocked grants a lease, if c can.
func (c *Counter) grantLocked() {
	if c.entry == nil || c.dead || c.granted != 0 || c.last == math.MinInt64 || c.is(quarantined|revoked) {
		return
	}
	e, p := c.entry, c.part
	epoch, shard := &c.group.epoch, 0
	if p != nil {
		epoch, shard = p.epoch, p.shard
	}
	made := epoch.n.Load() // read it before the values that a new epoch changes
	if p != nil && p.mode.Load() != c.mode() {
		return // units of the next check have another multiplier
	}
	left := int64(0)
	if c.refusesUntil == 0 {
		if left = c.spareLocked(); left <= 0 {
			return
		}
	}
	t := leaseTerms{c.latestRule.Load(), epoch, made, c.sourceLocked()}
	if c.refusesUntil != 0 && c.notice != nil {
		t.source = c.refusalSourceLocked(c.last, 1)
	}
	l := e.lease.Load()
	if !l.fits(t, c.last) {
		if l = c.group.lease(t, c.last, shard); l == nil {
			return
		}
	}
	w, ok := c.wordLocked(l, left)
	if !ok {
		return
	}
	if e.lease.Load() != l {
		e.lease.Store(l)
	}
	c.granted = uint16(unitsOf(w))
	if p != nil && !c.is(inNormal) && !p.link.closed.Load() {
		w |= unqueued // queues c; a refusal does not: the refused check has queued c
	}
	e.word.Store(w | (e.word.Load()+1)&generationMask)
}

// queueLeased puts c into the normal queue after a lease has admitted its first unit since c was
// collected. The lease stays. The unqueued bit of its word stays set until c is queued: each check
// that admits meanwhile comes here, so no check returns before its units are sure to be reported.
func (c *Counter) queueLeased(now int64) {
	c.mu.Lock()
	c.dateLocked(max(now, c.last), c.usedLocked())
	l := c.link()
	wake := !c.is(quarantined) && !l.closed.Load() && c.joinNormalLocked() && l.push(c, false)
	if c.granted != 0 {
		c.entry.word.And(^uint64(unqueued))
	}
	c.mu.Unlock()
	if wake {
		l.signal()
	}
}

// spareLocked returns how many units a lease of c may have: fewer than make a report urgent, and no
// more than fit into a window. A lease of a leaky bucket is bounded by its level instead.
func (c *Counter) spareLocked() int64 {
	if modeMultiplier(c.mode()) != 1 || c.is(inUrgent) && c.lingerUntil != 0 && !modeDegraded(c.mode()) || c.notice != nil && c.noticeLocked(c.last) != nil {
		return 0 // each unit must be seen: it may move the report forward, or be refused
	}
	left := algorithm.MaxUnits - c.pendUnits()
	if c.part != nil && !c.is(inFlight) && !modeDegraded(c.mode()) {
		next := int64(c.urgentAt) // more are urgent, see noteLocked
		if c.is(inUrgent) {
			next = c.nextDoublingLocked() // more must overtake
		}
		left = min(left, next-1-c.pendUnits())
	}
	return min(left, leaseMost, c.state().Spare(c.rule(), c.last, c.clock()))
}

// wordLocked returns the word for this number of units, or for a refusal, with generation 0. It
// returns false if the state of c does not fit into a word.
//
// The lease of a window ends with its current bucket.
func (c *Counter) wordLocked(l *lease, left int64) (w uint64, ok bool) {
	last := c.last - l.base
	if c.refusesUntil != 0 {
		time := min(c.refusesUntil-l.base, timeMost)
		return newWord(time, unitsRefused), time > last
	}
	level, until := c.state().Lease(c.rule(), c.last)
	if l.perNS == 0 {
		until = min(until-l.base, windowSpan-1) >> windowUnit
		return newWord(until<<windowTime|last, uint32(left)), until<<windowUnit > last
	}
	holds, ok := c.rule().ToTicks(level)
	return newWord(holds+last*l.perNS, uint32(left)), ok && holds <= l.full
}
