package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The checks of the fleet: what all nodes have admitted of a key, added up by
// package oracle, against what a node may still admit and what Redis may count.
// And those of a node, which are in checks_test.go.
const (
	checkKnown      = "fleet: at most the limit of what a node must know"
	checkOutage     = "fleet: one limit in an outage of all"
	checkStored     = "redis: no less than was booked and still counts"
	checkMost       = "redis: no more than was admitted and still counts"
	checkRestored   = "redis: told again what it had lost"
	checkOnce       = "redis: no unit booked twice"
	checkConserved  = "node: every unit is booked, waiting or expired"
	checkTold       = "node: at most what it was told leaves"
	checkMultiplied = "node: at most its share while cut off"
	checkRefused    = "node: nothing refused without a cause"
	checkAgain      = "node: told again only what it was told"
	checkWell       = "node: not cut off without a cause"
	checkFresh      = "node: views are new while all is well"
	checkCalm       = "node: the limit while all is well"
	checkCharged    = "node: charges up to the ceiling"
)

var simChecks = []string{
	checkKnown, checkOutage, checkStored, checkMost, checkRestored, checkOnce, checkConserved,
	checkTold, checkMultiplied, checkRefused, checkAgain, checkWell, checkFresh, checkCalm, checkHint, checkCharged,
	checkExact, checkExactAlone, checkExactSum, checkExactRefused, checkExactFallback, checkExactLearnt, checkNoLoss,
}

// slack is how far a unit may be from where its time says it is: clocks drift,
// and while exchanges take long nodes misjudge the server's.
func (f *simFleet) slack(fk *fleetKey) int64 {
	slack := 2*f.s.oracle.slack() + (f.s.now-simStart)/2000
	if f.s.now-fk.slowAt <= int64(arith.Of(fk.rule).Horizon())+2*f.s.longest() {
		slack += 2 * (f.s.longest() + 50*ms)
	}
	return slack
}

// period returns since when units surely count, seen from what may be that much
// off. Near the ends of a fixed window nobody knows which one it is.
func (f *simFleet) period(fk *fleetKey, slack int64) (p oracle.Period, ok bool) {
	v := fk.server
	p = oracle.Period{From: math.MinInt64, At: f.s.now}
	switch arith.Of(fk.rule).Algorithm {
	case arith.TokenBucket:
		return p, true
	case arith.FixedWindow:
		width := int64(arith.Of(fk.rule).Width)
		since := v.time() % width
		p.From = v.ago(since - slack)
		if v.jumped != 0 {
			p.From = max(p.From, v.jumped+slack)
		}
		return p, since > slack && width-since > slack
	case arith.CalendarQuota:
		is, now := arith.Of(fk.rule), v.time()
		id := is.Index(now)
		since, left := now-is.Ends(id-1), is.Ends(id)-now
		p.From = v.ago(since - slack)
		if v.jumped != 0 {
			p.From = max(p.From, v.jumped+slack)
		}
		return p, since > slack && left > slack
	}
	p.From = v.ago(int64(fk.rule.Period()) - slack)
	return p, true
}

// whole is the period in which all units count in full: without what leaves the
// oldest bucket of a sliding window early.
func (f *simFleet) whole(fk *fleetKey, slack int64) (p oracle.Period, ok bool) {
	if arith.Of(fk.rule).Algorithm == arith.SlidingWindow {
		slack += int64(arith.Of(fk.rule).Width)
	}
	return f.period(fk, slack)
}

// above reports whether a number of units is more than so many.
func above(units, most float64) bool { return units > most*(1+1e-9)+1e-3 }

// leaked returns what a leaky bucket leaks in a time, 0 for a window.
func leaked(r *limit.Rule, d int64) float64 {
	if arith.Of(r).Algorithm != arith.TokenBucket {
		return 0
	}
	return float64(d) / unit(r)
}

// causes lists what has happened to a key, for a failure.
func (f *simFleet) causes(fk *fleetKey) string {
	return fmt.Sprintf("%d losses, %d sets, %d refunds, %d jumps of the server's clock, %d clocks stood still", fk.losses, fk.sets, fk.refunds, len(fk.server.jumps), len(f.stalls))
}

// knows checks that a node has admitted no more than what it must know leaves.
func (f *simFleet) knows(n *simNode, k oracleKey, units int64) {
	fk, rule := f.key(k), n.rule(k.rule)
	slack := f.slack(fk)
	if sh := f.s.oracle.nodes[n].shares[k]; sh.answeredAt != 0 {
		slack += 2*sh.slack + (f.s.now-sh.answeredAt)/2000
	}
	if f.s.oracle.loose {
		return
	}
	most := float64(rule.Limit())
	for _, over := range [...]func(*fleetKey, int64) (oracle.Period, bool){f.whole, f.period} {
		p, ok := over(fk, slack)
		if !ok {
			continue
		}
		f.steps[checkKnown]++
		if known := fk.Known(n.id, p) - leaked(rule, slack); above(known, most) {
			f.s.failf("%s: %s admitted %d units of %v %q, which makes %.1f that it must know of, above %.0f; all nodes have admitted %.1f [%s]\n%s",
				checkKnown, n.name, units, rule, k.key, known, most, fk.Total(p), f.causes(fk), fk.Explain(n.id, p))
		}
		// In the last period less a bucket no unit has left. In a whole period there are
		// at most ⌈limit/buckets⌉ units more than count (package limit, window.go).
		if most += float64(arith.Of(rule).Share); arith.Of(rule).Algorithm != arith.SlidingWindow {
			break
		}
	}
}

// outage checks that nodes that are all cut off admit no more than their shares:
// one limit, if they know how many they are. A single request may be larger than
// its node's share.
func (f *simFleet) outage(n *simNode, k oracleKey) {
	fk, rule := f.key(k), n.rule(k.rule)
	slack := f.slack(fk)
	p, ok := f.whole(fk, slack)
	longest, _ := f.whole(fk, 0) // the slack becomes less again when exchanges do not take long any more
	since, old := p.From, longest.From
	if arith.Of(rule).Algorithm == arith.TokenBucket {
		since = fk.Emptied() - 1
		old = since
	}
	for len(fk.cut) > 0 && fk.cut[0].at <= old {
		fk.cut = fk.cut[1:]
	}
	if recent := f.s.now - int64(arith.Of(fk.rule).Horizon()+f.s.settling()); !ok || f.s.oracle.loose || fk.before > since || fk.server.lost > recent {
		return // some have admitted on top of what others have heard of since
	}
	share, leaks := map[shareHolder]float64{}, map[shareHolder]float64{}
	ahead, one, first := 0.0, float64(rule.Limit()), f.s.now
	for _, c := range fk.cut {
		if c.at <= since {
			continue
		}
		first = min(first, c.at)
		if c.ahead {
			ahead += float64(c.units)
			continue
		}
		one = max(one, float64(c.limit))
		share[c.holder] = max(share[c.holder], float64(c.units), float64(c.limit)/float64(c.nodes))
		// What a request costs is capped at the limit: a large one leaks faster than a share.
		leaks[c.holder] = max(leaks[c.holder], 1/float64(c.nodes), min(float64(c.units)/max(float64(c.limit), 1), 1))
	}
	most, limits := 0.0, 0.0
	for holder, units := range share {
		most += units
		limits += leaks[holder] // whatever it holds, a whole leaky bucket leaks as fast as any
	}
	limits = max(limits, 1)
	// Several whole leaky buckets leak several times as fast as the one that is added up. From
	// first to now it has taken in at the most what they held, and what they have leaked.
	most = max(most, one) + ahead + (limits-1)*leaked(rule, f.s.now-first)
	f.steps[checkOutage]++
	got := fk.Outage(p) - limits*leaked(rule, slack)
	if above(got, most) {
		f.s.failf("%s: %.1f units of %v %q admitted, at most %.1f are %d shares", checkOutage, got, rule, k.key, most, len(share))
	}
}

// restored checks that what was lost has been reported again by all that knew it.
func (f *simFleet) restored() {
	for k, fk := range f.keys {
		if f.steps[checkRestored]++; fk.Losing() {
			f.s.failf("%s: %v %q\n%s", checkRestored, k.rule, k.key, fk.Explain(-1, oracle.Period{}))
		}
	}
}

// counted checks what Redis counts of a key.
func (f *simFleet) counted(fk *fleetKey) {
	v, slack := fk.server, f.slack(fk)
	if v.model.poison[fk.name] || f.s.oracle.loose {
		return
	}
	has := v.holds(fk.name, fk.rule)
	if p, ok := f.period(fk, slack); ok {
		f.steps[checkStored]++
		if least := fk.Stored(p) - leaked(fk.rule, slack); above(least, has) {
			f.s.failf("%s: Redis counts %.1f of %v, %.1f must count [%s]\n%s", checkStored, has, fk.name, least, f.causes(fk), fk.Explain(-1, p))
		}
	}
	if f.inflated(fk) {
		return
	}
	f.steps[checkMost]++
	p := oracle.Period{From: f.longAgo(fk, slack), At: f.s.now}
	most := fk.Most(p) + leaked(fk.rule, slack)
	if above(has, most) {
		f.s.failf("%s: Redis counts %.1f of %v, at most %.1f can be [%s]\n%s", checkMost, has, fk.name, most, f.causes(fk), fk.Explain(-1, p))
	}
}

// inflated reports whether Redis may count some units several times, which is the
// safe side, until they do not count any more: its clock has jumped. A node that
// tells what it knows before it has heard of that has other buckets in mind, and
// buckets ahead of a clock that was set back count as the current one.
func (f *simFleet) inflated(fk *fleetKey) bool {
	recent := f.s.now - int64(arith.Of(fk.rule).Horizon()+f.s.settling())
	return slices.ContainsFunc(fk.server.jumps, func(j clockJump) bool { return j.at > recent-max(-j.by, 0) })
}

// longAgo returns since when units may count in a window. While the server's
// clock is behind where it was, they count for so much longer; and those of
// which a node did not know the bucket, from when they were booked.
func (f *simFleet) longAgo(fk *fleetKey, slack int64) int64 {
	if arith.Of(fk.rule).Algorithm == arith.TokenBucket {
		return 0
	}
	v, keep := fk.server, int64(arith.Of(fk.rule).Horizon()+arith.Of(fk.rule).Width)+slack
	keep += v.behind(keep)
	from, late := f.s.now-keep, int64(0)
	fk.late = slices.DeleteFunc(fk.late, func(l lateness) bool { return !l.blind || l.at < from })
	for _, l := range fk.late {
		late = max(late, l.by)
	}
	return f.s.now - keep - late
}

// stalled returns for how long a node's clock has stood still since a time: a report
// of what was admitted then says that less has leaked.
func (f *simFleet) stalled(node int, since int64) (d int64) {
	for _, j := range f.stalls[node] {
		if j.at >= since {
			d += j.by
		}
	}
	return d
}
