package sim

import (
	"math"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What must hold of calls that Redis decides.
const (
	checkExact         = "exact: no more than the limit leaves beside all that was booked"
	checkExactAlone    = "exact: no more than the limit by Redis alone"
	checkExactSum      = "exact: Redis counts what it has booked, and nothing else"
	checkExactRefused  = "exact: refused from memory only with a cause"
	checkExactFallback = "exact: the fallback decides in an outage"
	checkExactLearnt   = "exact: what was answered is known"
	checkNoLoss        = "exact: nothing counts as lost that is not"
)

// exactly is the number under which the books of a key have what Redis has decided. All that it admits
// is booked at that moment.
const exactly = -2

// exactLeast is what Redis must count of a key, as whole buckets and with the one that leaves.
type exactLeast struct {
	whole, all       float64
	wholeOK, allOK   bool
	wholeOf, longest oracle.Period
}

// leastBooked returns what Redis must count of a key at the least.
func (f *simFleet) leastBooked(fk *fleetKey) (l exactLeast) {
	slack := f.slack(fk)
	l.wholeOf, l.wholeOK = f.whole(fk, slack)
	l.longest, l.allOK = f.period(fk, slack)
	l.whole = fk.Stored(l.wholeOf) - leaked(fk.rule, slack)
	l.all = fk.Stored(l.longest) - leaked(fk.rule, slack)
	return l
}

// exactRecord is what a server has booked of a key by exact calls, by its own clock, since something
// happened that makes room or shifts time.
type exactRecord struct {
	since [4]int64
	times []int64
	units []int64
	tat   float64 // of a leaky bucket, ns since simStart
}

// stamp changes when something happens to a key that makes room or shifts time.
func (x *exactPlay) stamp(fk *fleetKey) [4]int64 {
	return [4]int64{fk.losses, int64(fk.sets), int64(len(fk.server.jumps)), fk.server.lost}
}

// booked keeps what a server has booked for an exact call, and checks that there was room.
func (x *exactPlay) booked(v *simServer, n *simNode, k oracleKey, units int64, rule *limit.Rule, least exactLeast) {
	s, f := x.s, x.s.fleet
	fk, most := f.key(k), float64(rule.Limit())
	if !s.oracle.loose {
		f.steps[checkExact]++
		if share := float64(arith.Of(rule).Share); least.wholeOK && above(least.whole+float64(units), most) || least.allOK && above(least.all+float64(units), most+share) {
			s.failf("%s: %d units of %v %q on top of %.1f or %.1f [%s]\n%s", checkExact, units, rule, k.key, least.whole, least.all, f.causes(fk), fk.Explain(-1, least.wholeOf))
		}
	}
	r := x.records[k]
	if r == nil {
		r = &exactRecord{since: x.stamp(fk)}
		x.records[k] = r
		fk.End(exactly) // it never holds the key
	}
	x.alone(v, r, fk, k, units, rule)
	s.oracle.order++
	bk := s.oracle.book(k)
	bk.all = append(bk.all, admission{at: s.now, order: s.oracle.order, n: units, server: v.time(), rule: k.rule, multiplier: 1, slack: s.oracle.slack(), node: -1})
	s.oracle.prune(bk, k.rule)
	fk.Admit(exactly, s.now, units, oracle.How{})
	fk.Booked(exactly, fk.Mark(exactly), s.now, 0)
	f.counted(fk)
}

// alone checks that exact calls alone admit no more than the limit, by the server's clock and without
// any slack.
func (x *exactPlay) alone(v *simServer, r *exactRecord, fk *fleetKey, k oracleKey, units int64, rule *limit.Rule) {
	if is := x.stamp(fk); is != r.since {
		*r = exactRecord{since: is}
	}
	now := v.time()
	r.times, r.units = append(r.times, now), append(r.units, units)
	if len(r.times) == 1 { // the server's clock may be behind simStart
		r.tat = float64(now - simStart)
	}
	r.tat = max(r.tat, float64(now-simStart)) + float64(units)*unit(k.rule)
	if fk.refunds > 0 {
		return // what was handed back has made room
	}
	x.s.fleet.steps[checkExactAlone]++
	if held, most := r.held(rule, now), float64(rule.Limit()); above(held, most) {
		x.s.failf("%s: %.3f units of %v %q [%s]", checkExactAlone, held, rule, k.key, x.s.fleet.causes(fk))
	}
}

// held returns how many units of a record count.
func (r *exactRecord) held(rule *limit.Rule, now int64) float64 {
	if arith.Of(rule).Algorithm == arith.TokenBucket {
		return (r.tat - float64(now-simStart)) / unit(rule)
	}
	for len(r.times) > 0 && r.times[0] < now-3*int64(arith.Of(rule).Horizon()) {
		r.times, r.units = r.times[1:], r.units[1:]
	}
	w := newTally(rule, now)
	for i, at := range r.times {
		w.came(at, r.units[i])
	}
	return float64(w.count())
}

// learnt notes that a node is told what Redis has answered to an exact call. What it must know from then
// on is only certain while no report of the shard is under way and all is well.
func (o *nodeOracle) learnt(n *simNode, k oracleKey, c *exactCall, i int) {
	nb, bk, sh := o.nodes[n], o.books[k], o.nodes[n].shares[k]
	st, given, took := c.taken.Answers[i].State, o.given(nb, bk.shard, c.executed), o.s.now-c.begun
	o.s.patience = max(o.s.patience, took)
	sh.freshAt = max(sh.freshAt, given)
	if arith.Of(k.rule).Algorithm == arith.TokenBucket {
		sh.topUp(&report.Report{Rule: k.rule}, &exchange{left: c.begun}, st, given, o.s.now, nb.stalled)
	}
	o.s.note(n.id, "learns "+k.rule.Name()+" "+k.key, st.Gen, st.Born)
	later := st.Gen > sh.genMost || st.Gen == sh.genMost && st.Gen == sh.gen && st.Born > sh.born
	sh.born = max(sh.born, st.Born)
	sh.genMost = max(sh.genMost, st.Gen)
	unsure := nb.blind[bk.shard] != 0 || n.shard(bk.shard).Flight.Keys > 0 || n.core.State().Mode != reconcile.Synced || nb.unwell >= c.begun ||
		sh.unreadable || o.s.now < nb.stalled || took > o.slack() || nb.vague[bk.shard] > o.slack()
	for j := range sh.own {
		unsure = unsure || sh.own[j].multiplier > 1 || sh.own[j].debt || sh.own[j].at <= nb.unwell
	}
	switch {
	case !later:
	case unsure && st.Gen > sh.gen: // it may know of that generation, or not
		o.s.fleet.forget(n, k)
		sh.forget()
		sh.gen = st.Gen
	case !unsure:
		o.s.fleet.steps[checkExactLearnt]++
		fuzzy, sent := sh.fuzzy, sh.sent
		x := &exchange{b: &redisstore.Batch{Shard: bk.shard}, left: c.begun, executed: c.executed}
		if o.answeredKey(sh, k.rule, st, x, nb.jumped) {
			o.s.fleet.answered(n, k, c.editions[i], false, took)
		} else {
			o.s.fleet.forget(n, k)
		}
		sh.fuzzy, sh.sent = fuzzy, sent
	}
}

// finish checks, when all has settled, the sums of exact calls, and that no data was taken for lost.
func (x *exactPlay) finish() {
	s, lost := x.s, false
	for _, v := range s.servers {
		lost = lost || v.lost != 0
	}
	for k, r := range x.records {
		if !lost && x.calm && x.kinds[k] == alwaysExact {
			x.sum(k, r)
		}
	}
	for _, n := range s.nodes {
		if lost || !x.calm || n.stopped != 0 || s.oracle.nodes[n].jumped != 0 || s.oracle.late != 0 {
			continue
		}
		s.fleet.steps[checkNoLoss]++
		if sum := n.stats.RolledBack.Load(); sum != 0 {
			s.failf("%s: %s has %d times", checkNoLoss, n.name, sum)
		}
	}
}

// sum checks that Redis counts of a key that is only taken exactly what it has booked, if no fallback has
// admitted any of it.
func (x *exactPlay) sum(k oracleKey, r *exactRecord) {
	fk := x.s.fleet.key(k)
	for c, units := range fk.server.model.credit {
		if c.key == fk.name && units > 0 {
			return
		}
	}
	if fk.refunds > 0 || x.stamp(fk) != ([4]int64{}) {
		return
	}
	x.s.fleet.steps[checkExactSum]++
	now, has := fk.server.time(), fk.server.holds(fk.name, k.rule)
	want := max((r.tat-float64(now-simStart))/unit(k.rule), 0)
	if is := arith.Of(k.rule); arith.Of(k.rule).Algorithm != arith.TokenBucket {
		want = 0
		for i, at := range r.times {
			if is.Index(at) >= is.Index(now)-int64(is.Kept) {
				want += float64(r.units[i])
			}
		}
	}
	if math.Abs(want-has) > 1e-9*want+1e-3 {
		x.s.failf("%s: it counts %.3f units of %v %q, and has booked %.3f", checkExactSum, has, k.rule, k.key, want)
	}
}
