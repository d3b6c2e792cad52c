package sim

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// mostCharged is how many units one call charges at most. Redis counts up to limit.MaxUnits in a bucket,
// and the model does not stop there.
const mostCharged = arith.MaxUnits >> 10

// charge counts units on a node, whether they fit or not.
func (n *simNode) charge(key string, rule *limit.Rule, units int64) {
	units = min(units, mostCharged)
	k := oracleKey{rule, key}
	charged, src, ok := n.counter(k).Charge(n.time(), units, n.rule(rule), n.s.opt.MaxDebt)
	if !ok || charged < 0 || charged > units || charged < units && arith.Of(rule).Algorithm != arith.TokenBucket {
		n.s.failf("%d units charged of %d", charged, units)
	}
	n.admitted += charged
	n.s.oracle.charged(n, k, units, charged, src)
	n.wakeUp()
}

// charged keeps what was charged, and checks that it is neither too much nor too little (I1).
func (o *nodeOracle) charged(n *simNode, k oracleKey, units, charged int64, src limit.Source) {
	nb, bk := o.nodes[n], o.books[k]
	sh, rule := nb.shares[k], n.rule(k.rule)
	o.s.note(n.id, "charged "+k.rule.Name()+" "+k.key, units, charged)
	multiplier := int64(1)
	if src == limit.SourceDegraded {
		sh.fuzzy = true
		switch n.fallback {
		case reconcile.FairShare:
			multiplier = nb.told
		case reconcile.FailOpen:
			multiplier = 0
		}
	}
	o.health(n)
	if blind := nb.blind[bk.shard] != 0; arith.Of(rule).Algorithm == arith.TokenBucket && !blind {
		o.chargedBelowCeiling(n, k, units, charged)
	}
	if charged == 0 {
		return
	}
	o.admit(n, k, charged, multiplier, src == limit.SourceDegraded)
	sh.own[len(sh.own)-1].debt = true
	fk := o.s.fleet.key(k)
	fk.cut = append(fk.cut, cutOffUnits{at: o.s.now, units: charged, ahead: true})
}

// ceiling returns above which level a token bucket forgives units, in ns.
func (o *nodeOracle) ceiling(rule *limit.Rule) float64 {
	debt := float64(o.s.opt.MaxDebt)
	if debt == 0 {
		debt = float64(rule.Limit()) * unit(rule)
	}
	return min(float64(rule.Limit())*unit(rule)+max(debt, 0), float64(arith.MaxWindow))
}

// chargedBelowCeiling checks what was charged to a token bucket: it ends below the ceiling by what the
// node must know, and what was forgiven would have been above it.
func (o *nodeOracle) chargedBelowCeiling(n *simNode, k oracleKey, units, charged int64) {
	sh, rule := o.nodes[n].shares[k], n.rule(k.rule)
	ceiling := o.ceiling(rule)
	o.s.fleet.steps[checkCharged]++
	slack := float64(max(o.slack(), sh.slack) + (o.s.now-sh.answeredAt)/2000)
	level := max(o.tat(sh, rule, sh.own)-float64(o.s.now-simStart)-slack, 0)
	if reserves := o.s.plan != nil && o.s.plan.reserves; charged > 0 && !reserves && level+float64(charged)*unit(rule) > ceiling*(1+1e-9)+1 {
		o.s.failf("%s: %s charged %d units to %v %q, which held %v by what it must know; the ceiling is %v\nknown: %+v",
			checkCharged, n.name, charged, k.rule, k.key, time.Duration(level), time.Duration(ceiling), sh)
	}
	if charged == units || o.loose || sh.fuzzy || !o.repaired(o.books[k], rule) || o.s.fleet.inflated(o.s.fleet.key(k)) {
		return
	}
	fk := o.s.fleet.key(k)
	over := o.s.fleet.slack(fk) + 2*sh.slack + (o.s.now-sh.answeredAt)/2000
	most := fk.Ever(oracle.Period{From: o.s.fleet.longAgo(fk, over), At: o.s.now}) + fk.Pending(n.id) + leaked(k.rule, over)
	if (most+float64(charged)+1)*unit(rule) < ceiling*(1-1e-9)-1 {
		o.s.failf("%s: %s charged %d of %d units to %v %q, though at most %.1f can count and the ceiling is %v\nknown: %+v",
			checkCharged, n.name, charged, units, k.rule, k.key, most, time.Duration(ceiling), sh)
	}
}
