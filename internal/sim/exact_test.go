package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Calls that Redis decides, as package hybrid makes them (fault 104): a node asks Redis unless it knows
// that it would refuse, and its counters learn from what Redis answers.

// exactPlay is which keys a world takes exactly, and what servers have booked by that.
type exactPlay struct {
	s       *sim
	rng     *rand.Rand
	kinds   map[oracleKey]exactKind
	records map[oracleKey]*exactRecord
	allBack bool // each unit is handed back
	calm    bool // nothing is lost on the way, nor in Redis, and clocks do not drift
}

type exactKind int

const (
	neverExact exactKind = iota
	sometimesExact
	alwaysExact
)

// withExact has some keys be taken exactly: some of these by all nodes and only so. In every third seed
// Redis loses nothing, so that sums must be exact.
func (s *sim) withExact() {
	s.exact = &exactPlay{s: s, rng: rand.New(rand.NewPCG(s.seed, 0xe8ac)), kinds: map[oracleKey]exactKind{}, records: map[oracleKey]*exactRecord{}}
	if s.seed%2 == 0 {
		s.withBadNotices()
	}
	if s.exact.calm = s.seed%3 == 0; s.exact.calm {
		s.rates, s.plan.rates, s.plan.slow = rates{}, rates{}, false
		for _, v := range s.servers {
			v.clock.ppm = 0
		}
		s.plan.kinds = slices.DeleteFunc(s.plan.kinds, func(kind string) bool { return !slices.Contains(lossless, kind) })
	}
}

// lossless are the faults that lose no data in Redis and set no clock.
var lossless = []string{"outage", "freeze", "reset", "set", "refund", "other limit", "partition", "swizzle", "crash", "forget", "flush", "script flush", "idle", "burst", "replace"}

// kind draws how a key is taken.
func (x *exactPlay) kind(k oracleKey) exactKind {
	if x == nil {
		return neverExact
	}
	kind, drawn := x.kinds[k]
	if !drawn {
		kind = []exactKind{neverExact, sometimesExact, sometimesExact, alwaysExact, alwaysExact}[x.rng.IntN(5)]
		x.kinds[k] = kind
	}
	return kind
}

// takes draws whether a call for a key is exact.
func (x *exactPlay) takes(k oracleKey) bool {
	kind := x.kind(k)
	return kind == alwaysExact || kind == sometimesExact && x.rng.IntN(3) == 0
}

// late draws by how much the reply to an exact call is later than others, which so overtake it.
func (x *exactPlay) late() int64 {
	if x.rng.IntN(4) > 0 {
		return 0
	}
	if x.allBack {
		return x.rng.Int64N(10 * ms)
	}
	return x.rng.Int64N(300 * ms)
}

// exactCall is a call that Redis is asked to decide, and then its outcome.
type exactCall struct {
	keys     []oracleKey
	units    []int64
	asks     []redisstore.Ask
	looks    bool // one of them can never be admitted: nothing is booked
	taken    redisstore.Taken
	err      error
	begun    int64 // true time
	executed int64
	editions []int64 // of each key, when it was executed
}

// takeExactly asks for units of a key exactly, sometimes together with units of another of its limits.
func (n *simNode) takeExactly(key string, rule *limit.Rule, units int64) {
	s := n.s
	c := &exactCall{keys: []oracleKey{{rule, key}}, units: []int64{units}}
	if units == 0 {
		return // it is a plain call
	}
	if k := (oracleKey{s.rules[s.exact.rng.IntN(len(s.rules))], key}); k != c.keys[0] && s.exact.rng.IntN(5) == 0 && s.exact.kind(k) != neverExact {
		c.keys, c.units = append(c.keys, k), append(c.units, 1+s.exact.rng.Int64N(3))
	}
	if n.link.Degraded(key) {
		n.fallBack(c)
		return
	}
	results, refused := make([]limit.Result, len(c.keys)), make([]bool, len(c.keys))
	some := false
	for i, k := range c.keys {
		ok := false
		results[i], refused[i], ok = n.counter(k).Refuses(n.time(), c.units[i], n.rule(k.rule))
		if !ok {
			s.failf("a counter died")
		}
		some = some || refused[i]
	}
	for i, k := range c.keys {
		if refused[i] {
			s.fleet.steps[checkExactRefused]++
			s.oracle.taken(n, k, c.units[i], results[i])
		}
	}
	if n.wakeUp(); some {
		return
	}
	wait := int64(0) // for a pipeline, or for others that come along
	if s.exact.rng.IntN(4) == 0 {
		wait = s.exact.rng.Int64N(20 * ms)
	}
	s.after(wait, func() { n.askExactly(c) })
}

// fallBack decides a call in an outage.
func (n *simNode) fallBack(c *exactCall) {
	n.s.fleet.steps[checkExactFallback]++
	if len(c.keys) == 1 {
		n.ask(c.keys[0], c.units[0])
		return
	}
	n.together(c.keys, c.units)
}

// askExactly sends a call. Its reply may be late, or lost: then nobody learns from it.
func (n *simNode) askExactly(c *exactCall) {
	s, key := n.s, c.keys[0].key
	switch {
	case n.dead || s.now < n.paused:
		return // the caller has given up
	case n.link.Degraded(key):
		n.fallBack(c)
		return
	}
	for i, k := range c.keys {
		name := s.keyspace().CounterKey(k.rule, k.key)
		q := redisstore.Ask{Counter: name, Rule: n.rule(k.rule), Units: c.units[i], Own: c.units[i]}
		if q.Units > q.Rule.Limit() { // see redisstore.Store.SumUp
			q.Units, q.Own, c.looks = 0, 0, true
		}
		c.asks = append(c.asks, q)
	}
	v, sent, over := s.serverOf(s.keyspace().Shard(key)), n.time(), false
	c.begun = s.now
	s.after(0, func() { n.step(reconcile.Asked{Shard: s.keyspace().Shard(key)}) })
	s.after(4*simTimeout, func() { over = true })
	p := &part{server: v, steps: 1, answered: []bool{false}, accept: func(int) {}, fail: func(_ int, err error) { c.err = err }}
	p.run = func(int) {
		if !v.copies { // no client sends it again
			v.takeExactly(n, c)
		}
	}
	n.send(p, func() {
		s.after(s.exact.late(), func() {
			if over || c.err != nil {
				return
			}
			n.deliver(func() reconcile.Event {
				n.learn(c, sent)
				return reconcile.Tick{}
			})
		})
	})
}

// learn has the counters learn what Redis has answered, and a little later the core.
func (n *simNode) learn(c *exactCall, sent int64) {
	s := n.s
	for i, k := range c.keys {
		ctr := n.counters[k]
		if ctr == nil {
			continue // it was dropped
		}
		s.oracle.learnt(n, k, c, i)
		of, out, own := ctr, counter.Outcome{}, int64(0)
		if c.taken.Booked && c.taken.Answers[i].Units > 0 {
			own = c.asks[i].Own
		}
		out, _ = ctr.Learn(n.time(), report.Answer{
			State: c.taken.Answers[i].State, Rule: c.asks[i].Rule, ServerNow: int64(c.taken.Now), Sent: sent,
			Announce: own > 0, Own: own,
		})
		if own > 0 && (s.exact.allBack || s.exact.rng.IntN(4) == 0) { // the call does not happen
			wait := s.exact.rng.Int64N(3) * s.exact.rng.Int64N(300*ms)
			if s.exact.allBack {
				wait /= 100
			}
			s.after(wait, func() {
				if !n.dead && s.now >= n.paused {
					n.refund(k.key, k.rule, own)
				}
			})
		}
		if out != (counter.Outcome{}) {
			s.after(s.exact.rng.Int64N(3)*s.exact.rng.Int64N(5*ms), func() {
				n.deliver(func() reconcile.Event { return reconcile.Learned{Counter: of, Outcome: out, Sent: sent} })
			})
		}
	}
	n.wakeUp()
}

// takeExactly decides a call of a node. Two that book in the same µs cannot be told apart, and a real
// server takes longer for each: the second is lost.
func (v *simServer) takeExactly(n *simNode, c *exactCall) {
	now, m, f := v.time(), v.model, v.s.fleet
	v.takes(func(p *capacity) int64 { return p.call + int64(len(c.asks))*p.op })
	for i := range c.asks {
		if m.poison[c.asks[i].Counter] {
			c.err = errOfKey
		}
		if v.side(n) != m || m.birth(now, &c.asks[i]).born >= now/1000 && v.jumped == 0 {
			c.err = errBroken
		}
	}
	if c.err != nil {
		return
	}
	least := make([]exactLeast, len(c.keys))
	for i, k := range c.keys {
		fk := f.key(k)
		if b := m.leaky[fk.name]; arith.Of(k.rule).Algorithm == arith.TokenBucket && (b == nil || b.gone <= now) {
			fk.Expired()
		}
		least[i] = f.leastBooked(fk)
	}
	c.taken, c.executed = m.take(now, c.asks, !c.looks), v.s.now
	v.eachLua(func(l *luaRedis) { l.compareTake(now, c.asks, !c.looks, c.taken) })
	for i, k := range c.keys {
		v.s.note(-1-v.id, "takes "+k.rule.Name()+" "+k.key, c.units[i], c.taken.Answers[i].Units)
		if c.taken.Booked {
			v.s.exact.booked(v, n, k, c.units[i], c.asks[i].Rule, least[i])
		}
		c.editions = append(c.editions, f.key(k).Edition())
	}
}

// take is the script that decides, and books all of it or nothing.
func (m *modelRedis) take(now int64, asks []redisstore.Ask, book bool) redisstore.Taken {
	slack := m.slack
	defer func() { m.slack = slack }()
	m.slack = keptFor
	t := redisstore.Taken{Now: time.Duration(now), Booked: book, Answers: make([]redisstore.Answer, len(asks))}
	for i := range asks {
		if m.fits(now, &asks[i]) {
			t.Answers[i].Units = 1
		} else {
			t.Booked = false
		}
	}
	for i := range asks {
		q := &asks[i]
		op := &report.Report{Key: q.Counter, Rule: q.Rule}
		switch r := arith.Of(q.Rule); {
		case !t.Booked:
		case arith.Of(q.Rule).Algorithm == arith.TokenBucket:
			level := r.Sub(m.leakyAt(now, q.Counter).tat, arith.Span{NS: now})
			op.Units, op.Ahead = q.Own, r.Add(level, r.Cost(q.Own))
		default:
			op.Units, op.Buckets = q.Own, []report.Bucket{{ID: r.Index(now), Units: q.Own, Last: time.Duration(inBucket(now, q.Rule))}}
		}
		st := &t.Answers[i].State
		if *st = m.op(now, op, t.Booked); st.Level.Less(arith.Span{}) {
			st.Level = arith.Span{}
		}
	}
	return t
}

// fits reports whether there is room for what is asked for.
func (m *modelRedis) fits(now int64, q *redisstore.Ask) bool {
	r := arith.Of(q.Rule)
	if arith.Of(q.Rule).Algorithm == arith.TokenBucket {
		level := r.Sub(m.leakyAt(now, q.Counter).tat, arith.Span{NS: now})
		return !r.Full.Less(r.Add(level, r.Cost(q.Units)))
	}
	w := newTally(q.Rule, now)
	for _, b := range m.window(now, &report.Report{Key: q.Counter, Rule: q.Rule}, false).Buckets {
		w.add(b.ID, b.Units, int64(b.Last))
	}
	return w.count()+q.Units <= q.Rule.Limit()
}

// birth returns of which time the state of a counter is.
func (m *modelRedis) birth(now int64, q *redisstore.Ask) modelBirth {
	if arith.Of(q.Rule).Algorithm == arith.TokenBucket {
		return m.leakyAt(now, q.Counter).modelBirth
	}
	return m.windowAt(now, q.Counter).modelBirth
}
