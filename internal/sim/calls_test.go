package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// reserve books units ahead, and sometimes gives them back.
func (n *simNode) reserve(key string, rule *limit.Rule, units int64) {
	s, k := n.s, oracleKey{rule, key}
	terms := counter.Terms{MaxDelay: s.calls.Int64N(2) * s.calls.Int64N(int64(10*time.Second)), Share: s.calls.IntN(2) == 0}
	res, b, ok := n.counter(k).Reserve(n.time(), units, n.rule(rule), terms)
	booked := b != nil
	if !ok || !booked && res.Allowed || booked && int64(res.RetryAfter) > terms.MaxDelay {
		s.failf("reserved: %v, %+v, with %+v", booked, res, terms)
	}
	if booked {
		n.admitted += units
	}
	switch {
	case res.Allowed, !booked && !terms.Share:
		s.oracle.taken(n, k, units, res)
	case booked:
		s.oracle.reserved(n, k, units, res)
	}
	n.wakeUp()
	if !booked || s.calls.IntN(3) > 0 {
		return
	}
	// Some refund what they have reserved, some cancel it: early, when it is due, late.
	giveUp, after := s.calls.IntN(3), s.calls.Int64N(int64(res.RetryAfter)+int64(time.Second))
	if giveUp == 0 {
		after = int64(res.RetryAfter)
	}
	s.after(after, func() {
		switch {
		case n.dead || s.now < n.paused:
		case giveUp == 1:
			n.refund(key, rule, units)
		default:
			n.cancel(k, b, units)
		}
	})
}

// cancel gives a reservation up.
func (n *simNode) cancel(k oracleKey, b *counter.Booking, units int64) {
	back, taken, ok := n.counter(k).Cancel(n.time(), n.rule(k.rule), b)
	if !ok || back < 0 || back > taken || taken > units && arith.Of(k.rule).Algorithm != arith.TokenBucket {
		n.s.failf("%d units handed back of %d that were reserved", back, units)
	}
	n.refunded += back
	n.s.oracle.refunded(n, k, taken) // it counts every unit in full
	n.wakeUp()
}

// takeTogether asks for several keys, all or none.
func (n *simNode) takeTogether(key string, rule *limit.Rule, units int64) {
	s := n.s
	keys := []oracleKey{{rule, key}}
	for range 1 + s.calls.IntN(3) {
		keys = append(keys, oracleKey{s.rules[s.calls.IntN(len(s.rules))], fmt.Sprint("key", s.calls.IntN(s.keys))})
	}
	amounts := make([]int64, len(keys))
	for i, k := range keys {
		if amounts[i] = 1 + s.calls.Int64N(3); s.exact.kind(k) == alwaysExact {
			return
		}
	}
	amounts[0] = min(max(units, 1), rule.Limit()+1) // 0 would mean 1
	n.together(keys, amounts)
}

// together asks for units of several keys, all or none.
func (n *simNode) together(keys []oracleKey, units []int64) {
	s := n.s
	checks, asked := make([]limit.Check, len(keys)), make([]counter.Asked, len(keys))
	sums := map[oracleKey]int64{}
	for i, k := range keys {
		asked[i], checks[i] = counter.Asked{Counter: n.counter(k), Check: i}, limit.Check{Key: k.key, Rule: n.rule(k.rule), N: units[i]}
		sums[k] += checks[i].N
	}
	out := make([]limit.Result, len(keys))
	if !counter.TakeTogether(asked, checks, n.time(), out) {
		s.failf("a counter died")
	}
	all := true
	for i := range out {
		all = all && out[i].Allowed
	}
	for i, k := range keys {
		if slices.Contains(keys[i+1:], k) {
			continue // it counts as one, with the last of that key
		}
		if all {
			n.admitted += sums[k]
		}
		if all || !out[i].Allowed {
			s.oracle.taken(n, k, sums[k], out[i])
		}
	}
	n.wakeUp()
}

// reserved keeps what was booked ahead: not before what the node must know of
// has leaked away (I1).
func (o *nodeOracle) reserved(n *simNode, k oracleKey, units int64, res limit.Result) {
	nb, bk := o.nodes[n], o.books[k]
	sh, rule := nb.shares[k], n.rule(k.rule)
	o.s.note(n.id, "reserved "+k.rule.Name()+" "+k.key, units, int64(res.RetryAfter))
	if arith.Of(k.rule).Algorithm != arith.TokenBucket || res.RetryAfter <= 0 || res.Remaining != 0 || units > rule.Limit() {
		o.s.failf("%d units of %v %q booked ahead: %+v", units, k.rule, k.key, res)
	}
	o.health(n)
	multiplier := int64(1)
	if res.Source == limit.SourceDegraded {
		sh.fuzzy = true
		if multiplier = 1; n.fallback == reconcile.FairShare {
			multiplier = nb.told
		}
		o.notWithoutCause(n, bk, sh)
	}
	if multiplier == 1 && nb.blind[bk.shard] == 0 {
		slack := float64(max(o.slack(), sh.slack) + (o.s.now-sh.answeredAt)/2000)
		over := o.tat(sh, rule, sh.own) - float64(o.s.now-simStart) + float64(units-rule.Limit())*unit(rule)
		if float64(res.RetryAfter) < (over-slack)*(1-1e-9)-1 {
			o.s.failf("I1: %s lets %d units of %v %q through after %v, though by what it must know they fit after %v\nknown: %+v",
				n.name, units, k.rule, k.key, res.RetryAfter, time.Duration(over), sh)
		}
	}
	o.admit(n, k, units, multiplier, res.Source == limit.SourceDegraded)
	o.s.fleet.ahead(k)
}

// set makes used units of a key count, for everybody.
func (n *simNode) set(k oracleKey, used int64) {
	s, v := n.s, n.s.serverOf(n.s.keyspace().Shard(k.key))
	if w := n.wires[v.id]; s.down || v.killed || v.frozen || v.side(n) != v.model || w != (wire{}) || s.chance(s.lossReq) {
		return
	}
	sent := n.time()
	s.after(s.latency(), func() {
		if s.down || v.killed || v.frozen {
			return
		}
		done, ok := v.renew(k, used)
		if !ok || s.chance(s.lossRep) {
			return
		}
		at, edition := s.now, s.fleet.key(k).Edition()
		s.after(s.latency(), func() {
			n.deliver(func() reconcile.Event {
				if c := n.counters[k]; c != nil {
					s.oracle.heard(n, k, done, at, edition)
					c.Renew(n.time(), n.rule(k.rule), reconcile.Renewal(sent, n.time(), done))
				}
				if used < n.rule(k.rule).Limit() {
					return reconcile.Room{Notice: s.roomOf(k, n.rule(k.rule), done)}
				}
				return reconcile.Tick{}
			})
		})
	})
}
