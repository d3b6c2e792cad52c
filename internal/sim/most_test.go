package sim

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What a node may count at the most: what it refuses, and what it reports to Redis again.

// notTooLittle: what is refused had no room for it, in truth.
func (o *nodeOracle) notTooLittle(n *simNode, k oracleKey, units int64, res limit.Result) {
	bk, sh, rule := o.books[k], o.nodes[n].shares[k], n.rule(k.rule)
	if o.s.opt.ExpectedNodes > 1 && n.core.State().Mode != reconcile.Synced {
		return // until Redis has answered each unit may count more than once
	}
	if o.loose || !o.repaired(bk, rule) || sh.fuzzy || o.s.now < o.nodes[n].stalled || n.fallback == reconcile.FailClosed && res.Source != limit.SourceSynced {
		return
	}
	if nb := o.nodes[n]; arith.Of(k.rule).Algorithm == arith.TokenBucket && nb.stalled != 0 && o.s.now < nb.stalled+int64(arith.Of(rule).Horizon()) {
		return // for the node nothing has leaked while its clock stood still
	}
	for _, a := range sh.own {
		if a.multiplier > 1 || a.at <= o.nodes[n].unwell {
			return // it goes on counting more than once until Redis has answered
		}
	}
	fk := o.s.fleet.key(k)
	if o.s.fleet.inflated(fk) {
		return
	}
	o.s.fleet.steps[checkRefused]++
	slack := o.s.fleet.slack(fk) + 2*sh.slack + (o.s.now-sh.answeredAt)/2000
	if arith.Of(k.rule).Algorithm == arith.TokenBucket || !o.repaired(bk, rule) {
		// What a node counts was answered by Redis, which may have lost it since, or is its own.
		p := oracle.Period{From: o.s.fleet.longAgo(fk, slack), At: o.s.now}
		most := fk.Most(p)
		if o.since(n, bk, sh) == 0 {
			most = fk.Ever(p)
		}
		most += fk.Pending(n.id) + leaked(k.rule, slack)
		if !above(most+float64(units), float64(rule.Limit())) {
			o.s.failf("%s refused %d units of %v %q, though at most %.1f can count [%s]\nknown: %+v", n.name, units, k.rule, k.key, most, o.s.fleet.causes(fk), sh)
		}
		return
	}
	if most := o.windowHigh(n, k, sh, rule, slack); most+units <= rule.Limit() {
		o.s.failf("%s refused %d units of %v %q, though only %d were admitted in all [%s]\nknown: %+v", n.name, units, k.rule, k.key, most, o.s.fleet.causes(fk), sh)
	}
}

// windowHigh returns how many units a window can hold at the most.
func (o *nodeOracle) windowHigh(n *simNode, k oracleKey, sh *share, rule *limit.Rule, slack int64) int64 {
	bk, width := o.books[k], int64(arith.Of(rule).Width)
	w := newTally(rule, bk.server.time()-slack)
	since := o.since(n, bk, sh)
	for i := len(bk.all) - 1; i >= 0; i-- {
		a := bk.all[i]
		if a.at < since {
			break
		}
		if a.n < 0 {
			continue // Redis may have counted fewer of them
		}
		late := slack
		if a.blind {
			late += width + o.age + o.late
		}
		w.came(a.server+late, a.n)
		if before := arith.Of(rule).Index(a.server - slack); before < arith.Of(rule).Index(a.server+late) {
			w.add(before, 0, width) // it may have been booked at the end of that
		}
	}
	return w.count()
}

// since returns from when on units count for a node that has learnt the
// latest reset, if it has: those that were reported late come after it too. What it is
// told of by an old master may be of a later generation, and yet from before a reset that
// the new one alone has seen.
func (o *nodeOracle) since(n *simNode, bk *book, sh *share) int64 {
	v := bk.server
	apart := v.side(n) != v.model && bk.reset >= v.split.at
	if bk.gen == 0 || sh.gen < bk.gen || sh.answeredAt == 0 || apart {
		return 0
	}
	return bk.reset - o.age - o.worst
}

// repaired reports whether Redis counts no unit twice: not any more, if it has
// lost some that the nodes have reported again.
func (o *nodeOracle) repaired(bk *book, r *limit.Rule) bool {
	v := bk.server
	if v.lost == 0 {
		return true
	}
	last := v.lost
	for _, nb := range o.nodes {
		last = max(last, nb.ill[v.id])
	}
	return o.s.now-last > int64(o.s.settling()+arith.Of(r).Horizon())
}

// topUp keeps what a node knows of a leaky bucket at the most, by an answer that was given then.
//
// The node does not know when an answer was given, only that it was between sending and now. Until a faster
// exchange has shown the server's clock it may take it to be of now. It keeps the later of this level and of
// the one that it knew before, with what it has reported since: an answer below that may lack lost units. So
// what a slow exchange adds stays, however exact later answers are, until it has leaked, units of others
// are more than it, or a new generation begins:
//
//	latest = max(latest + reported, now + level as answered)
//
// It is no more than the duration of the exchange, and only makes the node stricter.
// If its clock stands still, that leaks so much later.
func (sh *share) topUp(op *report.Report, x *exchange, st report.State, given, now, stalled int64) {
	told := func(at int64) float64 {
		return float64(max(at, stalled)-simStart) + float64(st.Level.NS) + 1
	}
	alone := float64(x.left-simStart) + float64(op.Ahead.NS) + float64(max(stalled-x.left, 0)) + 1
	if st.Gen > sh.genMost {
		sh.latest = 0
	}
	sh.top = max(sh.top+float64(op.Units)*unit(op.Rule), told(given), alone)
	sh.latest = max(sh.latest+float64(op.Units)*unit(op.Rule), told(now), alone)
}

// given returns as of when, at the latest, a node takes an answer that was given at executed. It reads the
// server's time in it by what it knows of that clock now. If it does not know the clock, or if the clock was set
// after the answer, that may be any time until the answer came:
//
//	min(server's time - offset, now)
//
// where the offset has become less by as much as the clock was set back.
func (o *nodeOracle) given(nb *nodeBook, shard int, executed int64) int64 {
	if nb.blind[shard] != 0 || executed < o.s.serverOf(shard).jumped {
		return o.s.now
	}
	return executed
}

// reportsAgain checks what a node reports again of a leaky bucket: no more than it was answered,
// and has reported since.
func (o *nodeOracle) reportsAgain(n *simNode, op *report.Report) {
	nb, k := o.nodes[n], o.index[op.Key]
	sh, fk := nb.shares[k], o.s.fleet.key(k)
	if o.loose || arith.Of(op.Rule).Algorithm != arith.TokenBucket {
		return
	}
	o.s.fleet.steps[checkAgain]++
	level := float64(op.Known.Level.NS - o.s.fleet.slack(fk) - 2*sh.slack)
	if most := max(sh.top-float64(o.s.now-simStart), 0); level > most {
		o.s.failf("%s: %s raises %v %q to %v, by what it was told and has reported it is at most %v", checkAgain, n.name, k.rule, k.key, op.Known.Level, time.Duration(most))
	}
}
