package sim

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// share is a node's part in a key.
type share struct {
	admitted   int64
	least      int64       // the smallest limit by which the node has decided
	own        []admission // since the flight of the last answer was made up
	buckets    map[int64]report.Bucket
	gen        int64
	genMost    int64   // the latest generation that it was answered
	born       int64   // the newest that it was answered
	freshAt    int64   // by an exact call it may have heard then that nothing is new
	base       float64 // TAT as answered
	top        float64 // and at the most, as the node knows it: see reportsAgain
	latest     float64 // and if each answer is as late as it can be: see topUp
	answeredAt int64   // when the last answer was given; 0: never
	asked      int64   // when the node was asked last
	busy       int64   // since when it has been asked without a pause
	sent       int64   // units from then on may be under way that a Set of the node's has left out of own
	slack      int64   // by how much that may be wrong
	fuzzy      bool    // it may know more than it must: a multiplier, a clock that stood still
	refused    int64   // when it was last refused by what Redis had answered
	wrongly    int64   // since when it has been refused by a notice although there was room; 0: it has not
	unreadable bool    // Redis cannot read the key, as answered last
}

// admission is one admitted request.
type admission struct {
	at, n      int64
	order      int64 // among admissions and flights
	server     int64 // by the server's clock
	blind      bool  // the node's idea of that clock was off then
	multiplier int64
	debt       bool        // in an outage
	rule       *limit.Rule // that it was admitted by
	slack      int64       // by how much the node's clocks may have been off then
	node       int
}

// cost returns what the units cost at the least if each costs so much: by
// the rule then, or by what has become of it since.
func (a *admission) cost(now *limit.Rule, multiplier int64) int64 {
	if a.n < 0 {
		return a.n * max(multiplier, 1) // handed back: at the most, each as it costs now
	}
	if multiplier <= 1 || a.multiplier <= 1 {
		return a.n
	}
	multiplier = min(multiplier, a.multiplier)
	return min(arith.Of(a.rule).Multiplied(a.n, multiplier), arith.Of(now).Multiplied(a.n, multiplier))
}

// dropMultipliers: what cost more before may count with the multiplier of fewer nodes from now on.
func (nb *nodeBook) dropMultipliers() {
	for _, sh := range nb.shares {
		for i := range sh.own {
			sh.own[i].multiplier = min(sh.own[i].multiplier, max(nb.told, 1))
		}
	}
}

// answeredKey merges an answer: what was answered never falls within a generation (I4).
func (o *nodeOracle) answeredKey(sh *share, r *limit.Rule, st report.State, x *exchange, jumped int64) bool {
	i := 0
	sh.sent = 0
	for i < len(sh.own) && sh.own[i].order < x.made {
		i++
	}
	old := sh.own[:i]
	isLeaky, before := arith.Of(r).Algorithm == arith.TokenBucket, 0.0
	if isLeaky {
		before = o.tat(sh, r, old) - float64(st.Forgiven)*unit(r)
		before = o.forgiven(sh, r, old, before, st.Forgiven, x.executed)
	}
	sh.own = sh.own[i:]
	if v := o.s.serverOf(x.b.Shard); x.executed < v.jumped || v.jumped != 0 && x.left < v.jumped+o.slack() || x.left < jumped {
		sh.forget() // by a clock that is not valid any more, or that the node does not believe yet
		return false
	}
	if max(sh.slack, o.slack()) > o.s.longest() && o.s.serverOf(x.b.Shard).lost >= sh.answeredAt {
		// While exchanges take long the node may find that its idea of the server's
		// clock was ahead. A window goes back for that, and restores nothing: of what
		// was lost meanwhile only that counts which the answer says.
		clear(sh.buckets)
	}
	was := sh.slack
	sh.answeredAt, sh.slack, sh.fuzzy, sh.unreadable = x.executed, o.slack(), false, false
	base := float64(x.executed-simStart) + float64(st.Level.NS) + float64(st.Level.Rem)/float64(max(arith.Of(r).Units, 1))
	if !isLeaky {
		base = 0
	}
	if st.Gen <= sh.gen && slices.ContainsFunc(old, func(a admission) bool { return a.n < 0 }) {
		// Not the generation that begins when something is handed back: the answer
		// is from before a reset that the node knows of, or by data that was lost
		// since. It comes off what was answered all the same, from where is not known.
		clear(sh.buckets)
		sh.base = 0
	}
	if st.Gen < sh.gen {
		return true
	}
	if st.Gen > sh.gen {
		sh.gen, before = st.Gen, 0
		clear(sh.buckets)
	}
	if sh.base = base; before > base { // it follows what it was answered before
		sh.base, sh.slack = before, max(sh.slack, was)
	}
	if k := len(st.Buckets); arith.Of(r).Calendar != nil && k > 0 && sh.buckets[st.Buckets[k-1].ID+1].Units > 0 {
		// A period has ended that had begun by a clock which was set back since, because its units were
		// lost: what was told again is in the answer.
		clear(sh.buckets)
	}
	for _, b := range st.Buckets {
		// Redis may have lost units, and have been told of others that came earlier.
		was := sh.buckets[b.ID]
		sh.buckets[b.ID] = report.Bucket{ID: b.ID, Units: max(b.Units, was.Units), Last: max(b.Last, was.Last)}
	}
	return true
}

// forgiven takes off what else Redis would have forgiven of an outage, if it had not dropped
// the key when that had run empty. Then it counts from less, and forgives less.
func (o *nodeOracle) forgiven(sh *share, r *limit.Rule, old []admission, tat float64, already, executed int64) float64 {
	if sh.base > float64(executed-simStart+max(sh.slack, o.slack())) {
		return tat
	}
	debt := -already
	for _, a := range old {
		if a.debt {
			debt += a.n
		}
	}
	most := float64(executed-simStart) + float64(r.Limit())*unit(r)
	switch d := o.s.opt.MaxDebt; {
	case d == 0:
		most += float64(r.Limit()) * unit(r)
	case d > 0:
		most += float64(d)
	}
	return min(tat, max(most, tat-float64(max(debt, 0))*unit(r)))
}

// broken: Redis cannot read the key. What it has booked before that counts as
// told, though not by Redis.
func (sh *share) broken(booked bool, x *exchange) {
	sh.fuzzy, sh.unreadable = true, true
	for i := range sh.own {
		if booked && sh.own[i].order < x.made {
			sh.own[i].multiplier = 1
			if sh.own[i].n < 0 { // came off what was answered before
				clear(sh.buckets)
				sh.base = 0
			}
		}
	}
}

// unit is what one unit adds to the time at which a leaky bucket runs empty, ns.
func unit(r *limit.Rule) float64 { return float64(r.Period()) / float64(arith.Of(r).Units) }

// tat returns when a leaky bucket runs empty that was answered sh and saw own.
func (o *nodeOracle) tat(sh *share, r *limit.Rule, own []admission) float64 {
	tat := sh.base
	for _, a := range own {
		tat = a.onto(tat, r)
	}
	return tat
}

// onto adds an admission to a leaky bucket that runs empty at tat.
func (a *admission) onto(tat float64, r *limit.Rule) float64 {
	if a.n > 0 {
		tat = max(tat, float64(a.at-simStart))
	}
	return tat + float64(a.n)*unit(r)
}

// oldest returns when the oldest unit was admitted that a flight may carry.
func (sh *share) oldest() int64 {
	if sh.sent == 0 && len(sh.own) > 0 {
		return sh.own[0].at
	}
	return sh.sent
}

func (sh *share) forget() {
	clear(sh.buckets)
	sh.base, sh.fuzzy = 0, true
	for i, a := range sh.own { // what they are worth now is not known, only how old they are
		sh.own[i] = admission{at: a.at, order: a.order, n: min(a.n, 0), rule: a.rule, blind: true}
	}
}
