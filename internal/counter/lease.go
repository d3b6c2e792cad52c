package counter

import (
	"math"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/tally"
	"github.com/hybridlimit/hybridlimit/limit"
)

// lease defines how the word of an entry is read. A counter grants a lease together with a word. As
// long as the word has units, the two decide checks without the counter. A lease is immutable and
// shared: for a while, all keys of a rule with the same source, epoch and shard of Redis have the
// same lease.
type lease struct {
	leaseTerms
	base  int64 // ns; times in words are relative to it
	span  int64 // ns; the lease is valid for this long from base on
	perNS int64 // ticks per ns of a leaky bucket, see [arith.Ticks]; 0: a window
	one   int64 // cost of a unit, in ticks
	full  int64 // highest level of a leaky bucket, in ticks: its capacity, or what fits into a word
}

// leaseTerms are what keys that share a lease have in common.
type leaseTerms struct {
	rule   *limit.Rule
	epoch  *epoch
	made   uint32 // number of the epoch at the grant: the lease ends when it changes
	source limit.Source
}

// Verdict is the answer of a lease to a check.
type Verdict uint8

const (
	// Unanswered means that the counter has to decide. Nothing was consumed.
	Unanswered Verdict = iota
	// Refused means that nothing was consumed.
	Refused
	// Admitted means that all units were consumed.
	Admitted
)

const (
	// leaseSlack is the most, in ns, by which the base of a lease is earlier than the check of the
	// key. So another key of the rule that was checked a moment earlier can share the lease.
	leaseSlack = 1 << 24
	// leaseShortest is the shortest span of a lease, in ns. Shorter leases would be made all the
	// time.
	leaseShortest = 100_000_000
	// leaseLatest is the latest time, in ns, at which a lease is granted. Not long after that, the
	// times at which full buckets are empty saturate.
	leaseLatest = math.MaxInt64 / 2
	// In the time of a window the lower windowTime bits are when the key was last asked, in ns: on
	// that depends when the units of its bucket leave. The upper bits are when the lease ends, in
	// units of 1<<windowUnit ns. windowSpan is the longest lease, in ns.
	windowTime = 33
	windowMask = 1<<windowTime - 1
	windowUnit = 2*windowTime - (64 - wordTime) // 0.26 ms
	windowSpan = 1 << windowTime
)

// newLease returns a lease of a rule for keys that were asked at now or later. It returns nil if
// the rule can have none: for a sliding log, and for a bucket of which one unit does not fit into a
// word.
func newLease(t leaseTerms, now int64) *lease {
	k, span := &arith.Of(t.rule).Ticks, int64(windowSpan)
	if now < 0 || now > leaseLatest {
		return nil
	}
	if k.PerNS != 0 {
		span = min(k.Most, timeMost/2/k.PerNS)
		if span < leaseShortest || k.One > timeMost/2 {
			return nil
		}
	} else if !algorithm.IsWindow(t.rule) {
		return nil // a leaky bucket whose numbers are too large for ticks, or a log
	}
	return &lease{
		leaseTerms: t, perNS: k.PerNS, one: k.One, full: min(k.Full, timeMost/2),
		span: span, base: max(now-min(leaseSlack, span/8), 0),
	}
}

// fits reports whether l can be granted to a key that was asked at last: at least half of its span
// must be left.
func (l *lease) fits(t leaseTerms, last int64) bool {
	return l != nil && l.leaseTerms == t && last >= l.base && last-l.base <= l.span/2
}

// isValid reports whether l can answer at now.
func (l *lease) isValid(now int64) bool {
	return uint64(now-l.base) < uint64(l.span) && l.epoch.n.Load() == l.made
}

// emptyAt returns when a leaky bucket is empty by the word w; for a window it returns the zero
// time.
func (l *lease) emptyAt(w uint64) arith.Span {
	if l.perNS == 0 {
		return arith.Span{}
	}
	r := arith.Of(l.rule)
	return r.Add(arith.Span{NS: l.base}, r.OfTicks(timeOf(w)))
}

// decide decides for n units at now by the word w. If it admits, is is the word to store, and level
// is what a leaky bucket then holds, in ticks.
func (l *lease) decide(w uint64, n, now int64) (is uint64, level int64, v Verdict) {
	at, time := now-l.base, timeOf(w)
	if !l.isValid(now) {
		return 0, 0, Unanswered
	}
	if refuses(w) {
		if at < time {
			return 0, 0, Refused
		}
		return 0, 0, Unanswered
	}
	if int64(unitsOf(w)) < n {
		return 0, 0, Unanswered
	}
	if l.perNS == 0 {
		if at >= time>>windowTime<<windowUnit {
			return 0, 0, Unanswered
		}
		return spend(w, max(time, time&^windowMask|at), n), 0, Admitted
	}
	at *= l.perNS
	time = max(time, at)
	if level = time - at + n*l.one; level > l.full {
		return 0, 0, Unanswered // the counter computes until when it refuses
	}
	return spend(w, time+n*l.one, n), level, Admitted
}

// askedLast returns, from the word, a lower bound of when the key was last asked under the lease.
// For a window it is exact. For a leaky bucket it follows from the level, which was no higher than
// full when the last unit was admitted.
func (l *lease) askedLast(w uint64) int64 {
	time := timeOf(w)
	if l.perNS == 0 {
		return l.base + time&windowMask
	}
	if time <= l.full {
		return math.MinInt64
	}
	return l.base + (time-l.full)/l.perNS // earlier than this the level would have been above full
}

// epoch ends leases: its number changes when the multiplier of units changes, or when Redis' clock, or
// the wall clock, has moved. Leases with an earlier number are void. An epoch has a cache line of its own, because
// each check reads it.
type epoch struct {
	n atomic.Uint32
	_ [60]byte
}

// leaseCells is the largest number of cached leases. With more rules in use, leases are made more
// often.
const leaseCells = 256

// Group is what the counters of an index have in common. The zero Group is ready to use, and safe
// for concurrent use.
type Group struct {
	// Link shares the counters; nil: nothing is shared.
	Link *Link
	// Tallies counts the units that leases have admitted: all of revoked leases, and of others
	// those that Survey has counted. nil: they are not counted.
	Tallies *tally.Tallies

	wall  atomic.Int64 // see SetWall, ns
	_     [40]byte     // keeps what changes often out of the cache line of epoch
	epoch epoch        // of counters without a link: it changes when the wall clock was set

	leases [leaseCells]atomic.Pointer[lease] // cached by rule, source and shard of Redis
}

// lease returns a lease for a key that was asked at last, nil if the rule can have none.
func (g *Group) lease(t leaseTerms, last int64, shard int) *lease {
	cell := &g.leases[(arith.Of(t.rule).Hash+uint64(t.rule.Limit())*31+uint64(t.source)*37+uint64(shard)*41)%leaseCells]
	l := cell.Load()
	if l.fits(t, last) {
		return l
	}
	if l = newLease(t, last); l != nil {
		cell.Store(l)
	}
	return l
}

// count counts units that a lease has admitted.
func (g *Group) count(l *lease, units int64) {
	if g.Tallies != nil && units > 0 {
		g.Tallies.Of(l.rule).Leased(units, l.source)
	}
}

// The word of an entry is what most checks read and swap. From the top:
//
//	48 bits  time
//	 1 bit   set: a check that admits puts the counter into the queue of the reconciler
//	11 bits  units left of the lease; 0: there is no lease, ask the counter
//	 4 bits  generation of the lease, which wraps
//
// The time counts from the base of the lease. For a leaky bucket it is when the bucket will be
// empty, in ticks of the lease. For a window it is two times: when the key was last asked, and when
// the lease ends (see windowTime). For a refusal it is when the refusal ends, in ns.
const (
	wordUnits, wordTime = 4, 16
	unqueued            = 1 << (wordTime - 1)
	unitsMask           = unqueued>>wordUnits - 1
	timeMost            = 1<<(64-wordTime) - 1
	generationMask      = 1<<wordUnits - 1

	// unitsRefused in place of the units marks a refusal. A lease has at most leaseMost units.
	unitsRefused = unitsMask
	leaseMost    = unitsRefused - 1
)

func unitsOf(w uint64) uint32 { return uint32(w >> wordUnits & unitsMask) }
func timeOf(w uint64) int64   { return int64(w >> wordTime) }
func refuses(w uint64) bool   { return unitsOf(w) == unitsRefused }

// newWord returns a word of generation 0.
func newWord(time int64, units uint32) uint64 {
	return uint64(time)<<wordTime | uint64(units)<<wordUnits
}

// spend returns w with a new time and n units fewer.
func spend(w uint64, time, n int64) uint64 {
	return uint64(time)<<wordTime | w&(1<<wordTime-1) - uint64(n)<<wordUnits
}
