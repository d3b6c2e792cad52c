package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// simPlan is what a seed draws before the run: the world, and which faults may
// happen in it, how often. Most seeds see only some kinds of them ("swarm
// testing"): a world in which everything goes wrong all the time hides more
// than it shows.
type simPlan struct {
	nodes, servers, keys int
	perPipe              int // shards in a pipeline, and in a heartbeat, at the most
	unmapped             bool
	opt                  Options
	rules                []*limit.Rule
	rates                rates
	slow                 bool // answers may take up to the time-out
	kinds                []string
	reserves, together   bool // some calls reserve, or ask for several keys at once
	charges              bool // some calls charge
	rounds               int
	perSecond            float64
	skew                 float64 // of keys: 1 all alike, more prefers few
	log                  []string
}

func (p *simPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d nodes, %d servers, %d keys, %.0f checks/s, key skew %.1f, %d rounds\n", p.nodes, p.servers, p.keys, p.perSecond, p.skew, p.rounds)
	o := p.opt
	fmt.Fprintf(&b, "interval %v, lag %v, heartbeat %v, shards %d, fallback %v, back-off %v to %v, degrade after %d, batch %d, %d nodes expected, debt %v\n",
		o.SyncInterval, o.MaxLag, o.HeartbeatInterval, o.Shards, o.Fallback, o.MinBackoff, o.MaxBackoff, o.DegradeAfter, o.MaxBatch, o.ExpectedNodes, o.MaxDebt)
	for _, r := range p.rules {
		fmt.Fprintln(&b, r)
	}
	fmt.Fprintf(&b, "rates %+v\nfaults %v, reserves %v, several at once %v, charges %v\n", p.rates, p.kinds, p.reserves, p.together, p.charges)
	for _, l := range p.log {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}

// fault is one thing that may happen between two rounds of load. Its do says
// what it did, for the record.
type fault struct {
	kind string
	do   func(s *sim, p *simPlan, rng *rand.Rand)
}

func drawPlan(rng *rand.Rand) *simPlan {
	p := &simPlan{servers: 1, keys: 1 + rng.IntN(8), rounds: 4 + rng.IntN(9), perSecond: math.Exp(3 + 3*rng.Float64()), skew: 1 + 2*rng.Float64()}
	switch x := rng.IntN(20); {
	case x == 0:
		p.nodes = 13 + rng.IntN(38)
	case x < 4:
		p.nodes = 6 + rng.IntN(7)
	default:
		p.nodes = 2 + rng.IntN(4)
	}
	if rng.IntN(3) == 0 {
		p.servers = 2 + rng.IntN(2)
	}
	p.unmapped = p.servers == 1 && rng.IntN(4) == 0
	pick := func(ds ...time.Duration) time.Duration { return ds[rng.IntN(len(ds))] }
	const mil = time.Millisecond
	p.opt = Options{
		SyncInterval:      pick(20*mil, 50*mil, 100*mil, 100*mil, 300*mil),
		MaxLag:            pick(0, 300*mil, 1000*mil, 2000*mil),
		HeartbeatInterval: pick(300*mil, time.Second, time.Second, 2*time.Second),
		Shards:            1 + rng.IntN(8),
		Fallback:          []reconcile.Fallback{reconcile.FairShare, reconcile.FairShare, reconcile.FairShare, reconcile.FullLimit, reconcile.FailOpen, reconcile.FailClosed}[rng.IntN(6)],
		MinBackoff:        pick(20*mil, 100*mil, 500*mil),
		MaxBackoff:        pick(500*mil, time.Second, 5*time.Second),
		DegradeAfter:      1 + rng.IntN(3),
		MaxBatch:          []int{1, 3, 200}[rng.IntN(3)],
		CommandTimeout:    time.Duration(simTimeout),
	}
	p.perPipe = []int{1, 3, 16}[rng.IntN(3)]
	for i := range 1 + rng.IntN(4) {
		p.rules = append(p.rules, drawRule(rng, i))
	}
	rate := func() float64 {
		if rng.IntN(3) > 0 {
			return 0
		}
		return rng.Float64() * rng.Float64() * 0.5
	}
	p.rates = rates{lossReq: rate(), lossRep: rate(), dup: rate(), delay: rate(), cut: rate(), delayMax: 1 + rng.Int64N(2000*ms)}
	p.slow = p.rates.delay > 0 || p.servers > 1 && !p.rates.none()
	for _, f := range faults {
		if rng.IntN(3) == 0 {
			p.kinds = append(p.kinds, f.kind)
		}
	}
	p.opt.ExpectedNodes = []int{0, 0, p.nodes, 1 + rng.IntN(2*p.nodes)}[rng.IntN(4)]
	return p
}

// drawRule draws a rule of any kind, with a limit of 1 to 10^9 and a period of
// milliseconds to days.
func drawRule(rng *rand.Rand, i int) *limit.Rule {
	l := int64(math.Exp(rng.Float64() * math.Log(1e9)))
	period := time.Duration(math.Exp(math.Log(2e5)+rng.Float64()*math.Log(86400e6/2e5))) * time.Microsecond
	if rng.IntN(2) == 0 { // what a run of seconds can exhaust
		l = 1 + rng.Int64N(200)
		period = time.Duration(500+rng.IntN(9500)) * time.Millisecond
	}
	switch name := fmt.Sprint("r", i); rng.IntN(5) {
	case 0, 1:
		units := max(1, int64(float64(l)*math.Exp(2*rng.Float64()-1)))
		return limit.Must(limit.TokenBucket("f"+name, units, period, l))
	case 2:
		return limit.Must(limit.FixedWindow("x"+name, l, period))
	case 3:
		b := []int{1, 2, 60}[rng.IntN(3)]
		return limit.Must(limit.SlidingWindowBuckets("b"+name, l, period/time.Duration(1000*b)*time.Duration(1000*b), b))
	default:
		return limit.Must(limit.SlidingWindow("s"+name, l, period/10000*10000))
	}
}

// drawLimit draws a rule with the numbers of another, but for its limit.
func drawLimit(rng *rand.Rand, r *limit.Rule) *limit.Rule {
	l := int64(float64(r.Limit()) * math.Exp(4*rng.Float64()-2))
	if rng.IntN(10) == 0 {
		l = 0
	}
	switch arith.Of(r).Algorithm {
	case arith.TokenBucket:
		return limit.Must(limit.TokenBucket(r.Name(), arith.Of(r).Units, r.Period(), l))
	case arith.FixedWindow:
		return limit.Must(limit.FixedWindow(r.Name(), l, r.Period()))
	case arith.CalendarQuota:
		return limit.Must(limit.Quota(r.Name(), l, limittest.CalendarOf(r)))
	}
	return limit.Must(limit.SlidingWindowBuckets(r.Name(), l, r.Period(), arith.Of(r).Buckets))
}

// faults are all kinds, in a fixed order: the seeds draw from it.
var faults = []fault{
	{"outage", func(s *sim, p *simPlan, _ *rand.Rand) { s.outage(!s.down); p.say("all servers refuse: %v", s.down) }},
	{"kill", func(s *sim, p *simPlan, rng *rand.Rand) {
		v := s.servers[rng.IntN(len(s.servers))]
		if v.killed {
			if rng.IntN(2) == 0 {
				v.wipe()
			}
			v.restart()
			p.say("server%d is back, %d counters", v.id, len(v.model.leaky)+len(v.model.windows))
			return
		}
		v.kill()
		p.say("server%d is killed", v.id)
	}},
	{"freeze", func(s *sim, p *simPlan, rng *rand.Rand) {
		v, d := s.servers[rng.IntN(len(s.servers))], rng.Int64N(3000*ms)
		p.say("server%d freezes for %v", v.id, time.Duration(d))
		v.freeze()
		s.after(d, v.thaw)
	}},
	{"wipe", func(s *sim, p *simPlan, rng *rand.Rand) {
		v := s.servers[rng.IntN(len(s.servers))]
		p.say("server%d loses everything", v.id)
		v.wipe()
	}},
	{"rollback", func(s *sim, p *simPlan, rng *rand.Rand) {
		v := s.servers[rng.IntN(len(s.servers))]
		if v.saved == nil || rng.IntN(2) == 0 {
			v.saved = v.save()
			return
		}
		p.say("server%d falls back to an older state", v.id)
		v.rollback(v.saved)
	}},
	{"evict", func(s *sim, p *simPlan, rng *rand.Rand) {
		v, key := s.drawKey(p, rng)
		p.say("server%d loses %s", v.id, key)
		v.forget(key)
	}},
	{"evict ledger", func(s *sim, p *simPlan, rng *rand.Rand) {
		shard, n := rng.IntN(s.opt.Shards), s.nodes[rng.IntN(len(s.nodes))]
		p.say("the ledger of %s in shard %d is lost", n.name, shard)
		s.serverOf(shard).forgetLedger(shard, n.shard(shard).Node)
	}},
	{"poison", func(s *sim, p *simPlan, rng *rand.Rand) {
		v, key := s.drawKey(p, rng)
		v.poison(key, !v.model.poison[key])
		p.say("%s is broken: %v", key, v.model.poison[key])
	}},
	{"reset", func(s *sim, p *simPlan, rng *rand.Rand) {
		k := oracleKey{s.rules[rng.IntN(len(s.rules))], fmt.Sprint("key", rng.IntN(s.keys))}
		p.say("%v %s is reset", k.rule, k.key)
		s.serverOf(s.keyspace().Shard(k.key)).renew(k, 0)
	}},
	{"set", func(s *sim, p *simPlan, rng *rand.Rand) {
		k := oracleKey{s.rules[rng.IntN(len(s.rules))], fmt.Sprint("key", rng.IntN(s.keys))}
		n, used := s.nodes[rng.IntN(len(s.nodes))], rng.Int64N(2)*rng.Int64N(2*k.rule.Limit()+1)
		p.say("%s sets %v %s to %d", n.name, k.rule, k.key, used)
		n.set(k, used)
	}},
	{"refund", func(s *sim, p *simPlan, _ *rand.Rand) {
		s.refunds = !s.refunds
		p.say("calls are refunded: %v", s.refunds)
	}},
	{"other limit", func(s *sim, p *simPlan, rng *rand.Rand) {
		r := s.rules[rng.IntN(len(s.rules))]
		to := drawLimit(rng, r)
		from := rng.IntN(len(s.nodes)) // sometimes all nodes, sometimes some of them
		p.say("the limit of %v is %d from the node %d of %d on", r, to.Limit(), from, len(s.nodes))
		for _, n := range s.nodes[from*rng.IntN(2):] {
			n.rules[r] = to
		}
	}},
	{"partition", func(s *sim, p *simPlan, rng *rand.Rand) {
		n, v := s.nodes[rng.IntN(len(s.nodes))], rng.IntN(len(s.servers))
		w := &n.wires[v]
		if *w != (wire{}) {
			*w = wire{}
		} else {
			*w = []wire{{refuse: true}, {dropTo: true}, {dropRep: true}, {dropTo: true, dropRep: true}}[rng.IntN(4)]
		}
		p.say("%s to server%d: %+v", n.name, v, *w)
	}},
	{"swizzle", swizzle},
	{"crash", func(s *sim, p *simPlan, rng *rand.Rand) {
		if len(s.nodes) > 1 {
			n := s.nodes[rng.IntN(len(s.nodes))]
			n.crash()
			p.say("%s crashes", n.name)
		}
		s.drawClock(s.addNode(Options{}), rng)
	}},
	{"pause", func(s *sim, p *simPlan, rng *rand.Rand) {
		n, d, clocks := s.nodes[rng.IntN(len(s.nodes))], rng.Int64N(8000*ms), rng.IntN(2) == 0
		p.say("%s pauses for %v, its clocks too: %v", n.name, time.Duration(d), clocks)
		n.pause(d+ms, clocks)
	}},
	{"clock jump", func(s *sim, p *simPlan, rng *rand.Rand) {
		n, d := s.nodes[rng.IntN(len(s.nodes))], rng.Int64N(3600_000*ms)
		if rng.IntN(2) == 0 {
			d = -d % (2000 * ms)
		}
		p.say("the clock of %s jumps by %v", n.name, time.Duration(d))
		n.jump(d)
	}},
	{"redis clock jump", func(s *sim, p *simPlan, rng *rand.Rand) {
		v, d := s.servers[rng.IntN(len(s.servers))], rng.Int64N(20_000*ms)-10_000*ms
		p.say("the clock of server%d jumps by %v", v.id, time.Duration(d))
		v.jump(d)
	}},
	{"forget", func(s *sim, p *simPlan, rng *rand.Rand) {
		n := s.nodes[rng.IntN(len(s.nodes))]
		p.say("%s forgets idle keys", n.name)
		n.forgetIdle()
	}},
	{"flush", func(s *sim, _ *simPlan, rng *rand.Rand) {
		n := s.nodes[rng.IntN(len(s.nodes))]
		s.after(0, n.flush)
	}},
	{"script flush", func(s *sim, _ *simPlan, rng *rand.Rand) {
		s.servers[rng.IntN(len(s.servers))].eachLua(func(l *luaRedis) { l.flushScripts() })
	}},
	{"idle", func(s *sim, p *simPlan, rng *rand.Rand) {
		d := time.Duration(rng.Int64N(30_000 * ms))
		p.say("nobody asks for %v", d)
		s.run(d)
	}},
	{"burst", func(s *sim, p *simPlan, rng *rand.Rand) {
		k, n := rng.IntN(s.keys), s.nodes[rng.IntN(len(s.nodes))]
		rule := s.rules[rng.IntN(len(s.rules))]
		p.say("a burst on %s", n.name)
		if s.now < n.paused {
			return
		}
		for range 1 + rng.IntN(300) {
			n.take(fmt.Sprint("key", k), rule, s.drawUnits(rule))
		}
	}},
	{"replace", replace},
	{"copy", func(s *sim, p *simPlan, rng *rand.Rand) {
		n := s.nodes[rng.IntN(len(s.nodes))]
		t := n.twin()
		p.say("%s is copied: %s", n.name, t.name)
		s.drawClock(t, rng)
	}},
}

// replace lets an outage begin in which nodes start, and others are replaced one by
// one.
func replace(s *sim, p *simPlan, rng *rand.Rand) {
	s.outage(true)
	old := slices.Clone(s.nodes)
	rng.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	old = old[:rng.IntN(min(len(old), 6)+1)]
	born, d := rng.IntN(3), int64(0)
	p.say("an outage in which %d nodes are replaced and %d start", len(old), born)
	for i := range len(old) + born {
		d += rng.Int64N(1000 * ms)
		s.after(d, func() {
			if s.healed {
				return
			}
			if i < len(old) && !old[i].dead {
				old[i].crash()
			}
			s.drawClock(s.addNode(Options{}), rng)
		})
	}
	s.after(d+rng.Int64N(2000*ms), func() { s.outage(false) })
}

// swizzle cuts wires one by one and heals them in another order.
func swizzle(s *sim, p *simPlan, rng *rand.Rand) {
	p.say("wires are cut one by one, and healed")
	at := int64(0)
	for _, i := range rng.Perm(len(s.nodes)) {
		w := &s.nodes[i].wires[rng.IntN(len(s.servers))]
		at += rng.Int64N(300 * ms)
		s.after(at, func() { w.dropTo = !s.healed })
		s.after(at+rng.Int64N(4000*ms), func() {
			*w = wire{}
			s.oracle.slow = max(s.oracle.slow, s.now)
		})
	}
}

func (p *simPlan) say(format string, args ...any) {
	p.log = append(p.log, "  "+fmt.Sprintf(format, args...))
}

func (s *sim) drawKey(p *simPlan, rng *rand.Rand) (*simServer, string) {
	ks, rule, key := s.keyspace(), p.rules[rng.IntN(len(p.rules))], fmt.Sprint("key", rng.IntN(p.keys))
	return s.serverOf(ks.Shard(key)), ks.CounterKey(rule, key)
}

// drawClock gives a node a clock that is up to an hour off and drifts.
func (s *sim) drawClock(n *simNode, rng *rand.Rand) {
	if n.clock.ppm = rng.Int64N(401) - 200; s.exact != nil && s.exact.calm {
		n.clock.ppm = 0
	}
	n.skew = rng.Int64N(7200_000*ms) - 3600_000*ms
}

// drawUnits draws how many units a check asks for.
func (s *sim) drawUnits(r *limit.Rule) int64 {
	switch x := s.rng.IntN(100); {
	case x == 0:
		return 0
	case x == 1:
		return r.Limit()
	case x == 2:
		return r.Limit() + 1
	case x == 3:
		return math.MaxInt64
	case x < 40 && r.Limit() > 100:
		return 1 + s.rng.Int64N(r.Limit()/20)
	}
	return 1 + s.rng.Int64N(3)
}

// checks offers the plan's load for a while.
func (s *sim) checks(d time.Duration, perSecond float64) {
	end := s.now + int64(d)
	for s.now < end {
		s.run(time.Duration(s.rng.ExpFloat64() / perSecond * 1e9))
		n := s.nodes[s.rng.IntN(len(s.nodes))]
		if s.now < n.paused {
			continue
		}
		rule := s.rules[s.rng.IntN(len(s.rules))]
		key := int(float64(s.keys) * math.Pow(s.rng.Float64(), s.plan.skew))
		name := fmt.Sprint("key", key)
		switch units := s.drawUnits(rule); {
		case s.exact.takes(oracleKey{rule, name}):
			n.takeExactly(name, rule, units)
		case s.plan.reserves && s.calls.Float64() < 0.1:
			n.reserve(name, rule, units)
		case s.plan.together && s.calls.Float64() < 0.1:
			n.takeTogether(name, rule, units)
		case s.plan.charges && s.calls.Float64() < 0.1:
			n.charge(name, rule, units)
		case s.refunds && s.chance(0.15):
			n.refund(name, rule, units)
		case s.chance(0.03):
			n.takeAtMost(name, rule, units)
		default:
			n.take(name, rule, units)
		}
	}
}

// perPipeline returns how many shards a pipeline may have, and for how many of a server a heartbeat asks.
func (s *sim) perPipeline() int {
	if s.plan == nil {
		return 16
	}
	return s.plan.perPipe
}
