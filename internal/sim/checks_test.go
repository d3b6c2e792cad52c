package sim

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// taken checks an answer and keeps what was admitted.
func (o *nodeOracle) taken(n *simNode, k oracleKey, units int64, res limit.Result) {
	nb, bk := o.nodes[n], o.books[k]
	sh := nb.shares[k]
	if o.s.now-sh.asked > int64(o.s.opt.SyncInterval) {
		sh.busy = o.s.now
	}
	sh.asked = o.s.now
	what := "refused "
	if res.Allowed {
		what = "admitted "
	}
	o.s.note(n.id, what+k.rule.Name()+" "+k.key, units, res.Remaining)
	rule := n.rule(k.rule)
	sh.least = min(sh.least, rule.Limit())
	o.shape(rule, k.key, units, res)
	fallback := n.fallback
	degraded := res.Source == limit.SourceDegraded
	multiplier := int64(1)
	if degraded {
		sh.fuzzy = true
		switch fallback {
		case reconcile.FairShare:
			multiplier = nb.told
		case reconcile.FailOpen:
			multiplier = 0
		case reconcile.FailClosed:
			if res.Allowed && units > 0 {
				o.s.failf("I2: %s admitted %d units of %v %q while it is to admit none", n.name, units, k.rule, k.key)
			}
		}
	}
	o.health(n)
	if degraded {
		o.notWithoutCause(n, bk, sh)
	}
	blind := nb.blind[bk.shard] != 0
	if !blind && multiplier > 0 {
		o.notTooMuch(n, k, units, multiplier, res)
	}
	if byNotice := res.Source == limit.SourceNotice; !res.Allowed && units <= rule.Limit() && !degraded && !byNotice {
		o.notTooLittle(n, k, units, res)
		sh.refused = o.s.now
	}
	o.notForLong(n, k, units, res)
	if o.calm != 0 && !degraded && res.Allowed && units > 0 {
		o.upToDate(n, k)
		o.fleet(n, k, units)
	}
	if res.Allowed && units > 0 {
		o.admit(n, k, units, multiplier, degraded)
		if !blind && multiplier > 0 {
			o.s.fleet.knows(n, k, units)
		}
		if degraded && multiplier > 0 {
			o.s.fleet.outage(n, k)
		}
	}
}

// admit keeps what was admitted.
func (o *nodeOracle) admit(n *simNode, k oracleKey, units, multiplier int64, degraded bool) {
	nb, bk := o.nodes[n], o.books[k]
	sh, rule, blind := nb.shares[k], n.rule(k.rule), nb.blind[bk.shard] != 0
	o.order++
	a := admission{
		at: o.s.now, order: o.order, n: units, server: bk.server.time(), blind: blind, multiplier: multiplier,
		rule: rule, slack: max(o.slack(), nb.vague[bk.shard]), node: n.id, debt: degraded,
	}
	bk.all = append(bk.all, a)
	o.s.fleet.admitted(n, k, a, degraded)
	sh.admitted += units
	if !blind {
		sh.own = append(sh.own, a)
	} else {
		sh.own = append(sh.own, admission{at: a.at, order: a.order, rule: rule, blind: true}) // in which bucket is unknown
	}
	o.prune(bk, k.rule)
}

// prune forgets what no check can ask for any more.
func (o *nodeOracle) prune(bk *book, r *limit.Rule) {
	if len(bk.all) < 256 || arith.Of(r).Algorithm == arith.TokenBucket {
		return
	}
	old := o.s.now - 3*int64(arith.Of(r).Horizon()) - int64(time.Minute)
	i := 0
	for i < len(bk.all) && bk.all[i].at < old {
		i++
	}
	bk.all = bk.all[i:]
}

// shape checks what holds of every answer (I8, and what the docs say).
func (o *nodeOracle) shape(r *limit.Rule, key string, units int64, res limit.Result) {
	l := r.Limit()
	switch {
	case res.Limit != l, res.Remaining < 0, res.Remaining > l, res.RetryAfter < 0, res.ResetAfter < 0,
		res.Allowed != (res.RetryAfter == 0), units > l && (res.Allowed || res.RetryAfter != limit.Never), units == 0 && !res.Allowed:
		o.s.failf("%d units of %v %q: an answer that cannot be: %+v", units, r, key, res)
	}
}

// notTooMuch: no more is admitted, or said to remain, than what the node must
// know leaves (I1, I2, I4).
func (o *nodeOracle) notTooMuch(n *simNode, k oracleKey, units, multiplier int64, res limit.Result) {
	sh := o.nodes[n].shares[k]
	if multiplier > 1 {
		o.s.fleet.steps[checkMultiplied]++
	} else {
		o.s.fleet.steps[checkTold]++
	}
	left := o.left(n, k, sh, multiplier)
	most := res.Remaining
	if res.Allowed && units > 0 && multiplier == 1 {
		most += units
	}
	if multiplier == 1 && most > max(left, 0) {
		o.s.failf("I1: %s, %v %q: %d units admitted and %d remaining, but from what it must know there were %d\nknown: %+v",
			n.name, k.rule, k.key, units, res.Remaining, left, sh)
	}
	if cost := arith.Of(n.rule(k.rule)).Multiplied(units, multiplier); multiplier > 1 && res.Allowed && units > 0 && cost > left {
		o.s.failf("I2: %s admitted %d units of %v %q, each costing %d; from what it must know there were %d left\nknown: %+v",
			n.name, units, k.rule, k.key, multiplier, left, sh)
	}
}

// left returns how many units can remain at the most. It errs on the high
// side: by the slack of the clocks.
func (o *nodeOracle) left(n *simNode, k oracleKey, sh *share, multiplier int64) int64 {
	rule, slack := n.rule(k.rule), max(o.slack(), sh.slack)+(o.s.now-sh.answeredAt)/2000
	if arith.Of(rule).Algorithm != arith.TokenBucket {
		return rule.Limit() - o.windowLow(k, sh, rule, multiplier, slack)
	}
	full := float64(rule.Limit()) * unit(rule)
	tat := sh.base
	for _, a := range sh.own {
		at := float64(a.at - simStart)
		if a.n > 0 {
			tat = max(tat, at)
		}
		if tat += float64(a.cost(rule, multiplier)) * unit(rule); multiplier > 1 {
			// What cost more once never makes a leaky bucket more than full.
			tat = min(tat, at+float64(sh.least)*unit(rule))
		}
	}
	level := tat - float64(o.s.now-simStart) - float64(slack)
	if level <= 0 {
		return rule.Limit()
	}
	return int64(math.Floor((full-level)/unit(rule)*(1+1e-9) + 1e-6))
}

// windowLow returns how many units the window must hold at the least.
func (o *nodeOracle) windowLow(k oracleKey, sh *share, rule *limit.Rule, multiplier, slack int64) int64 {
	w := newTally(rule, o.books[k].server.time()+slack)
	for id, b := range sh.buckets {
		w.add(id, b.Units, int64(b.Last))
	}
	back := int64(0)
	for _, a := range sh.own {
		if a.n < 0 { // from which bucket is not known
			back -= a.cost(rule, multiplier)
			continue
		}
		w.least(a.server-max(slack, a.slack), a.cost(rule, multiplier))
	}
	return max(w.count()-back, 0)
}

// windowTally counts a window's units by the definition.
type windowTally struct {
	r           *limit.Rule
	cur, passed int64
	sum         int64
	oldest      int64 // units of the bucket that leaves
	last        int64 // when its last one came
	recent      int64 // units that are less than a window old, and may be in that bucket
}

func newTally(r *limit.Rule, now int64) *windowTally {
	cur, passed := bucketAt(r, now)
	return &windowTally{r: r, cur: cur, passed: passed}
}

// add adds units of a bucket, the last of which came so long after it began.
func (w *windowTally) add(id, units, last int64) {
	switch age, kept := max(w.cur-id, 0), int64(arith.Of(w.r).Kept); {
	case age == kept && kept > 0:
		w.oldest, w.last = w.oldest+units, max(w.last, last)
	case age <= kept:
		w.sum += units
	}
}

// came adds units that came at a time.
func (w *windowTally) came(at, units int64) {
	id, last := bucketAt(w.r, at)
	w.add(id, units, last)
}

// least is came for units of which it is not known in which of two buckets they are: those
// that are less than a window old count, but for one bucket's share.
func (w *windowTally) least(at, units int64) {
	kept := int64(arith.Of(w.r).Kept)
	id, last := bucketAt(w.r, at)
	switch age := w.cur - id; {
	case age < kept || kept == 0:
		w.came(at, units)
	case age == kept && last > w.passed:
		w.recent += units
	}
}

func (w *windowTally) count() int64 {
	if arith.Of(w.r).Kept == 0 {
		return w.sum
	}
	return w.sum + max(w.oldest-arith.Of(w.r).Gone(w.oldest, w.last, w.passed), w.recent-arith.Of(w.r).Share)
}

// upToDate checks, while all is well, that what a node must know of a key that
// it goes on asking for is no older than the promise says, and that what it
// has admitted is booked in time (I1).
func (o *nodeOracle) upToDate(n *simNode, k oracleKey) {
	o.s.fleet.steps[checkFresh]++
	sh := o.nodes[n].shares[k]
	if age := o.s.now - max(sh.answeredAt, sh.freshAt, sh.busy, o.calm); age > o.patience(sh, n.rule(k.rule)) {
		o.s.failf("I1: %s admits units of %v %q on a view that is %v old", n.name, k.rule, k.key, time.Duration(age))
	}
	if at := o.unheard(k, sh); at != 0 && o.s.now-max(at, o.calm) > o.refresh(n.rule(k.rule)) {
		o.s.failf("I1: %s keeps units of %v %q from Redis for %v", n.name, k.rule, k.key, time.Duration(o.s.now-max(at, o.calm)))
	}
}

// unheard returns when the oldest unit was admitted that Redis must still be
// told of; 0 if there is none. What was handed back before that need not be.
func (o *nodeOracle) unheard(k oracleKey, sh *share) (at int64) {
	sum := int64(0)
	for _, a := range sh.own {
		if o.expired(k, a) {
			continue
		}
		if sum += a.n; sum <= 0 {
			sum, at = 0, 0
		} else if at == 0 {
			at = a.at
		}
	}
	return at
}

// expired reports whether a unit may count no longer: its bucket is too old, or
// its leaky bucket has run empty.
func (o *nodeOracle) expired(k oracleKey, a admission) bool {
	if arith.Of(k.rule).Algorithm == arith.TokenBucket {
		return o.s.now-a.at > int64(arith.Of(k.rule).Horizon())
	}
	now, is := o.books[k].server.time()+o.slack(), arith.Of(k.rule)
	return a.blind || is.Index(now)-is.Index(a.server-max(o.slack(), a.slack)) > int64(is.Kept)
}

// refresh is the longest that a view in use goes without a new answer, and a unit waits
// for its own: a lag, two ticks until the queue is served, the exchange that was under way
// then, and that which carries it.
func (o *nodeOracle) refresh(r *limit.Rule) int64 {
	lag := min(o.s.opt.MaxLag, max(o.s.opt.SyncInterval, arith.Of(r).Horizon()/4))
	return int64(lag+2*o.s.opt.SyncInterval) + 100*ms + 2*o.s.stays()
}

// fleet checks, while all is well, the promise itself on the list of all
// admitted units: those that everybody has had the time to hear of, and the
// node's own, leave room for what it admits now (I1).
func (o *nodeOracle) fleet(n *simNode, k oracleKey, units int64) {
	o.s.fleet.steps[checkCalm]++
	bk, sh, rule := o.books[k], o.nodes[n].shares[k], n.rule(k.rule)
	wait := o.patience(sh, rule)
	for _, n := range o.s.nodes {
		wait = max(wait, o.refresh(n.rule(k.rule)))
	}
	from, until := max(o.calm, sh.busy, bk.reset), o.s.now-2*wait
	w := newTally(rule, bk.server.time()+o.slack())
	tat := 0.0
	back := int64(0)
	for _, a := range bk.all {
		if a.n < 0 && a.at >= from-wait {
			// It came off when it was reported, be it of units that others have added
			// since: the node did not know that what it handed back was gone.
			back -= a.n
		}
		if a.n < 0 || a.at < from || a.at > until && a.node != n.id || a.blind {
			continue
		}
		if arith.Of(k.rule).Algorithm == arith.TokenBucket {
			// What several nodes have admitted or charged at once is forgiven above the ceiling.
			tat = min(a.onto(tat, k.rule), max(tat, float64(a.at-simStart)+o.ceiling(rule)))
		} else {
			w.least(a.server-max(o.slack(), a.slack), a.n)
		}
	}
	if arith.Of(k.rule).Algorithm != arith.TokenBucket {
		if sum := w.count() - back; sum+units > rule.Limit() {
			o.s.failf("I1: %s admitted %d units of %v %q, though %d that it had to know of were in the window", n.name, units, k.rule, k.key, sum)
		}
		return
	}
	level := tat - float64(o.s.now-simStart) - float64(o.slack()) - float64(back)*unit(rule)
	if full := float64(rule.Limit()) * unit(k.rule); level+float64(units)*unit(k.rule) > full*(1+1e-9)+1 {
		o.s.failf("I1: %s admitted %d units of %v %q, though the leaky bucket held %.1f that it had to know of", n.name, units, k.rule, k.key, level/unit(k.rule))
	}
}

// health notes when a node was last kept from a server.
func (o *nodeOracle) health(n *simNode) {
	nb := o.nodes[n]
	for i, v := range o.s.servers {
		well := !o.s.down && !v.killed && !v.frozen && o.s.rates.none() && n.wires[i] == (wire{}) && o.s.now > n.paused
		if !well {
			nb.ill[i] = o.s.now
		}
	}
}

// struck: a server was not well just now.
func (o *nodeOracle) struck(v *simServer) {
	for _, nb := range o.nodes {
		nb.ill[v.id] = o.s.now
	}
}

// notWithoutCause: keys of a server that is well are decided as if all were. A new node whose
// client does not say on which server a shard is takes them for one until they have answered:
// a shard that it has not heard of yet may be taken to be on one that is away.
func (o *nodeOracle) notWithoutCause(n *simNode, bk *book, sh *share) {
	// A heartbeat asks all servers, and ends at its deadline while one of them does not answer. Where
	// nothing is reported, as with FailClosed, the next one is the first that a server may answer.
	nb, settling := o.nodes[n], int64(o.s.settling()+redisstore.MostPatience*o.s.opt.CommandTimeout)
	ill := nb.ill[bk.server.id]
	o.s.fleet.steps[checkWell]++
	if ill != 0 && o.s.now-ill < settling || sh.unreadable {
		return
	}
	if o.s.unmapped && nb.blind[bk.shard] != 0 && o.s.now-nb.joined < settling {
		return
	}
	o.s.failf("%s decides by the fallback about a key of server%d, which was well (ill last at %d)", n.name, bk.server.id, ill)
}

// stepped checks what must hold of a node at any time.
func (o *nodeOracle) stepped(n *simNode) {
	o.health(n)
	nb, mode := o.nodes[n], n.core.State().Mode
	if mode != reconcile.Synced || nb.mode != reconcile.Synced { // it was not until this step
		nb.unwell = o.s.now
	}
	nb.mode = mode
	o.conserved(n)
	o.bounded(n)
}

// bounded checks that what a node has under way and keeps in queues has bounds, and that each shard
// is on one server (I7).
func (o *nodeOracle) bounded(n *simNode) {
	is := n.look()
	placed := 0
	for k, v := range is.Servers {
		if v.Slots < 0 || v.Slots > simPipelines {
			o.s.failf("I7: %s has %d of %d pipelines to a server left", n.name, v.Slots, simPipelines)
		}
		for _, i := range v.Shards {
			if placed++; is.Shards[i].Server != k {
				o.s.failf("I7: for %s shard %d is on two servers", n.name, i)
			}
		}
	}
	if placed != len(is.Shards) {
		o.s.failf("I7: for %s %d of %d shards are on a server", n.name, placed, len(is.Shards))
	}
	if is.Broken > n.made {
		o.s.failf("I7: %s wants to ask %d broken keys again, of %d", n.name, is.Broken, n.made)
	}
	queued := is.Later
	for i := range is.Shards {
		queued += is.Shards[i].Queued
	}
	// Each may be in two queues.
	if queued > 2*n.made+simEvicted*len(is.Shards) {
		o.s.failf("I7: %s has %d counters queued of %d", n.name, queued, n.made)
	}
}

// spared checks that a node has not asked too often during an outage (I7): a
// few times to notice, then at pauses that grow up to the longest.
func (o *nodeOracle) spared(n *simNode) {
	was := o.nodes[n].before
	if was.at == 0 {
		return // it has joined since
	}
	few := uint64(25)
	if took := o.s.now - was.at; n.stats.Beats.Load()-was.beats > few+n.asked+uint64(4*took/int64(o.s.opt.MaxBackoff)) {
		o.s.failf("I7: %s has asked %d times in an outage of %v", n.name, n.stats.Beats.Load()-was.beats, time.Duration(took))
	}
	if sent := n.stats.Batches.Load() - was.batches; sent > uint64(o.s.opt.Shards*(o.s.opt.DegradeAfter+2)) {
		o.s.failf("I7: %s has sent %d batches in an outage", n.name, sent)
	}
}

// conserved checks I3 from the node's side. It asks every counter of the node. What is
// lost here stays lost, so a node with many counters is asked in some steps only.
func (o *nodeOracle) conserved(n *simNode) {
	if o.nodes[n].asked++; o.nodes[n].asked%(1+n.made/64) != 0 {
		return
	}
	acked := n.stats.Acked.Load() + n.stats.Forgiven.Load()
	if got := acked + n.unsynced() + n.link.Expired.Load() + n.link.Withdrawn.Load() + n.link.Forgiven.Load(); got != n.admitted {
		o.s.failf("I3: %s admitted %d units, but acked or forgiven %d + unsynced %d + expired %d + withdrawn %d",
			n.name, n.admitted, acked, n.unsynced(), n.link.Expired.Load(), n.link.Withdrawn.Load())
	}
	if o.loose {
		return
	}
	o.s.fleet.steps[checkConserved]++
	applied, back := o.s.fleet.booked(n)
	if applied < acked || applied > n.admitted {
		o.s.failf("I3: Redis applied %d units of %s, which acked %d and admitted %d", applied, n.name, acked, n.admitted)
	}
	if known := n.handedBack() + int64(n.unanswered()); back > known {
		o.s.failf("I3: Redis has taken off what %s handed back %d times, which knows of %d", n.name, back, known)
	}
}
