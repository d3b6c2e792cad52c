package sim

import (
	"cmp"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// nodeOracle knows what must hold of each node. It never looks at a counter's state: it keeps
// the list of all admitted units, and of what each node was answered over the wire.
//
// What a node must know of a key at the least is what it was answered last plus
// what it has admitted since the flight of that answer was made up. From that
// follow
//
//	I1, I4  a node never admits more than the limit leaves, given what it must
//	        know; whatever it reports as remaining is no more than that;
//	I1      while all is well, what a node must know is never older than the
//	        promise says, and what it has admitted is booked in time;
//	I2      the same with multiplied units while it is cut off;
//	I3      every admitted unit is booked, waiting, or counted as expired; no
//	        data in Redis has a unit twice;
//	I5      (at the end) all agree with Redis.
//
// And in the other direction, while nothing is lost: a refusal needs units that
// really were admitted by somebody.
type nodeOracle struct {
	s     *sim
	books map[oracleKey]*book
	index map[string]oracleKey // by the name in Redis
	nodes map[*simNode]*nodeBook
	age   int64 // the oldest unit that was ever booked, when it was
	worst int64 // the largest slack there was
	late  int64 // how long nodes' clocks have stood still in all
	slow  int64 // exchanges may last since, or until, then
	order int64
	calm  int64 // all is well since then; 0: it is not
	loose bool  // the test itself meddles: do not check refusals
}

type oracleKey struct {
	rule *limit.Rule
	key  string
}

// book is the truth about a key.
type book struct {
	all    []admission
	reset  int64 // when it was last reset
	gen    int64 // and in which generation it has been since
	shard  int
	server *simServer
	name   string // in Redis
}

// nodeBook is what the oracle knows of a node.
type nodeBook struct {
	shares  map[oracleKey]*share
	told    int64   // live nodes, as reported last
	ill     []int64 // per server: when the node was last kept from it
	blind   []int64 // per shard: not 0 if no exchange has shown its clock that left after this
	vague   []int64 // per shard: how long the quickest took that has; it knows the clock no better
	flight  map[int]*exchange
	unwell  int64          // it was last not synced then: a unit may cost more since
	mode    reconcile.Mode // after its latest step
	before  calls          // that it had made when the outage began
	asked   int            // steps that conserved was called after
	jumped  int64          // its clock was last set then
	stalled int64          // its clock stands still until then
	joined  int64          // it began then
}

// calls counts what a node has sent.
type calls struct {
	at             int64
	beats, batches uint64
}

// exchange is a batch under way.
type exchange struct {
	b        *redisstore.Batch
	made     int64 // the order in which the flight was made up
	left     int64 // when it was sent this time
	executed int64
	editions []int64 // of each key, when it was executed
}

func newOracle(s *sim) *nodeOracle {
	return &nodeOracle{s: s, books: map[oracleKey]*book{}, index: map[string]oracleKey{}, nodes: map[*simNode]*nodeBook{}}
}

func (o *nodeOracle) joined(n *simNode) {
	k := o.s.opt.Shards
	b := &nodeBook{joined: o.s.now, ill: make([]int64, len(o.s.servers)), shares: map[oracleKey]*share{}, told: max(int64(o.s.opt.ExpectedNodes), 1), blind: make([]int64, k), vague: make([]int64, k), flight: map[int]*exchange{}}
	for i := range b.blind {
		b.blind[i] = o.s.now + 1 // nothing has been heard of the server
	}
	o.nodes[n] = b
}

func (o *nodeOracle) created(n *simNode, k oracleKey) {
	o.book(k)
	nb := o.nodes[n]
	admitted := int64(0)
	if old := nb.shares[k]; old != nil {
		admitted = old.admitted
	}
	nb.shares[k] = &share{admitted: admitted, least: arith.MaxUnits, buckets: map[int64]report.Bucket{}}
	o.s.fleet.key(k).Begin(n.id)
}

// book returns the books of a key.
func (o *nodeOracle) book(k oracleKey) *book {
	if o.books[k] == nil {
		ks := o.s.keyspace()
		shard := ks.Shard(k.key)
		o.books[k] = &book{name: ks.CounterKey(k.rule, k.key), shard: shard, server: o.s.serverOf(shard)}
		o.index[o.books[k].name] = k
	}
	return o.books[k]
}

// dropped: the node has forgotten what it was answered.
func (o *nodeOracle) dropped(n *simNode, k oracleKey) {
	sh := o.nodes[n].shares[k]
	*sh = share{admitted: sh.admitted, least: arith.MaxUnits, buckets: map[int64]report.Bucket{}}
	o.s.fleet.key(k).End(n.id)
	delete(o.s.fleet.key(k).strays, n.id)
}

// slack is how far a node's idea of a server's clock, or of when an answer was
// given, may be off.
func (o *nodeOracle) slack() int64 {
	slack := 5*ms + o.s.stays() + (o.s.now-simStart)/4000 // clocks drift by up to 1 in 5,000
	if o.slowly(); o.slow != 0 && o.s.now-o.slow < int64(o.s.settling()) {
		slack = o.s.longest() + 50*ms
	}
	o.worst = max(o.worst, slack)
	return slack
}

// slowly notes whether an exchange that succeeds may last for long now.
func (o *nodeOracle) slowly() {
	s, slow := o.s, o.s.delay > 0 || o.s.plan != nil && o.s.plan.slow
	for _, v := range s.servers {
		slow = slow || v.frozen
	}
	for _, n := range s.nodes {
		slow = slow || n.paused > s.now
		for _, w := range n.wires {
			slow = slow || w != wire{}
		}
	}
	if slow {
		o.slow = s.now
	}
}

// sent notes a batch that leaves.
func (o *nodeOracle) sent(n *simNode, b *redisstore.Batch) *exchange {
	nb := o.nodes[n]
	if len(b.Ops) > cmp.Or(o.s.opt.MaxBatch, redisstore.MaxOps) {
		o.s.failf("I7: %s sends a batch of %d keys", n.name, len(b.Ops))
	}
	x := nb.flight[b.Shard]
	if x == nil || x.b.Nonce != b.Nonce {
		o.order++
		x = &exchange{made: o.order}
	}
	was := x
	x = &exchange{b: b, made: was.made, left: o.s.now}
	nb.flight[b.Shard] = x
	o.s.fleet.sent(n, b)
	for i := range b.Ops {
		op := &b.Ops[i]
		what := "  asks for "
		if op.Restore {
			what = "  raises "
			o.reportsAgain(n, op)
		}
		o.s.note(n.id, what+o.index[op.Key].key, op.Units, int64(i))
	}
	return x
}

// executed notes what a server has done: nothing may be booked twice (I3).
func (o *nodeOracle) executed(v *simServer, n *simNode, b *redisstore.Batch, r redisstore.Reply) {
	if r.Verdict != redisstore.VerdictApplied {
		return
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		k, known := o.index[op.Key]
		if !known {
			o.s.failf("a batch for the key %q, which nobody asked for", op.Key)
		}
		sh := o.nodes[n].shares[k]
		o.s.fleet.steps[checkOnce]++
		most := sh.admitted + o.s.fleet.again[creditKey{n.name, op.Key}]
		if got := v.model.credit[creditKey{n.name, op.Key}]; got > most {
			o.s.failf("I3: Redis has %d units of %s on %v %q, which has admitted %d", got, n.name, k.rule, k.key, sh.admitted)
		}
		if at := sh.oldest(); op.Units > 0 && at != 0 {
			o.age = max(o.age, o.s.now-at)
		}
	}
}

// answered notes that a node has received the answer to a batch.
func (o *nodeOracle) answered(n *simNode, x *exchange, r redisstore.Reply) {
	nb := o.nodes[n]
	o.sighted(n, x.b.Shard, x.left)
	if r.Verdict != redisstore.VerdictApplied && r.Verdict != redisstore.VerdictDuplicate {
		return
	}
	given := o.given(nb, x.b.Shard, x.executed)
	for i := range x.b.Ops {
		op, st := &x.b.Ops[i], r.States[i]
		if arith.Of(op.Rule).Algorithm == arith.TokenBucket {
			nb.shares[o.index[op.Key]].topUp(op, x, st, given, o.s.now, nb.stalled)
		}
		if st.Err == nil {
			k := o.index[op.Key]
			sh := nb.shares[k]
			sh.genMost, sh.born = max(sh.genMost, st.Gen), max(sh.born, st.Born)
			older := max(st.Gen, st.Born) < sh.gen && int64(r.Now)/1000 >= sh.gen
			later := st.Gen > sh.gen
			if o.answeredKey(sh, k.rule, st, x, nb.jumped) {
				switch {
				case x.editions != nil:
					o.s.fleet.answered(n, k, x.editions[i], older, o.s.now-x.left)
				case later:
					o.s.fleet.answeredAstray(n, k)
				}
			} else {
				o.s.fleet.forget(n, k)
			}
		} else {
			nb.shares[o.index[op.Key]].broken(st.Booked, x)
			if !st.Booked {
				o.s.fleet.refused(n, x.b, i)
			}
		}
	}
}

// sighted: the node has heard of a server's clock in an exchange that began
// then. One that took long does not say much.
func (o *nodeOracle) sighted(n *simNode, shard int, begun int64) {
	nb := o.nodes[n]
	if o.s.now-begun > o.slack() {
		return
	}
	single := len(n.look().Servers) == 1
	for i := range nb.blind {
		if (i == shard || single) && begun >= nb.blind[i] {
			took := o.s.now - begun
			if nb.blind[i] == 0 {
				took = min(took, nb.vague[i])
			}
			nb.blind[i], nb.vague[i] = 0, took
		}
	}
}

// beaten notes that a node has received the answer to a heartbeat.
func (o *nodeOracle) beaten(n *simNode, begun int64, shards []int, b redisstore.Beat) {
	nb := o.nodes[n]
	if b.Nodes > 0 {
		nb.told = int64(b.Nodes)
		nb.dropMultipliers()
		o.sighted(n, 0, begun)
	}
	for i, sh := range shards {
		if b.Seqs[i] >= 0 {
			o.sighted(n, sh, begun)
		}
	}
}

// renewed: units before it do not count any more, but those that it says.
func (o *nodeOracle) renewed(k oracleKey, v *simServer, used, gen int64) {
	b := o.book(k)
	b.reset, b.gen = o.s.now, gen
	if used > 0 {
		o.order++
		a := admission{at: o.s.now, order: o.order, n: used, server: v.time(), rule: k.rule, multiplier: 1, slack: o.slack(), node: -1}
		b.all = append(b.all, a)
	}
}

// heard: a node has the answer to a Set of its own. What it has not reported of
// the key was admitted before, and does not count any more.
// What it was answered of that edition it reports again if Redis loses it.
func (o *nodeOracle) heard(n *simNode, k oracleKey, done redisstore.Renewed, at, edition int64) {
	sh := o.nodes[n].shares[k]
	nb := o.nodes[n]
	o.s.fleet.forget(n, k)
	sh.topUp(&report.Report{Rule: k.rule}, &exchange{left: at}, done.State, o.s.now, o.s.now, nb.stalled) // as of when it hears
	sh.genMost, sh.born = max(sh.genMost, done.State.Gen), max(sh.born, done.State.Born)
	if done.State.Gen <= sh.gen || at < o.books[k].server.jumped || at < nb.jumped || nb.blind[o.books[k].shard] != 0 {
		sh.forget()
		sh.gen = max(sh.gen, done.State.Gen)
		return
	}
	o.s.fleet.key(k).Heard(n.id, edition)
	sh.sent = sh.oldest() // if they get there later than the Set did, they count
	sh.gen, sh.own, sh.base, sh.answeredAt, sh.slack, sh.fuzzy = done.State.Gen, nil, 0, at, o.s.longest()+50*ms, true
	clear(sh.buckets)
	if lv := done.State.Level; lv != (arith.Span{}) {
		sh.base = float64(at-simStart) + float64(lv.NS) + float64(lv.Rem)/float64(max(arith.Of(k.rule).Units, 1))
	}
	for _, b := range done.State.Buckets {
		sh.buckets[b.ID] = b
	}
}

// refunded: a node has handed units back.
func (o *nodeOracle) refunded(n *simNode, k oracleKey, back int64) {
	nb, bk := o.nodes[n], o.books[k]
	sh := nb.shares[k]
	o.s.note(n.id, "refunds "+k.rule.Name()+" "+k.key, back, 0)
	if back == 0 {
		return
	}
	o.order++
	a := admission{at: o.s.now, order: o.order, n: -back, server: bk.server.time(), rule: n.rule(k.rule), multiplier: 1, slack: o.slack(), node: n.id}
	bk.all = append(bk.all, a)
	sh.own = append(sh.own, a)
	o.s.fleet.refunded(n, k, back)
}

// jumped: from now on a node's idea of the servers' clocks is wrong, until it
// hears from them. What it knew cannot be relied upon.
func (o *nodeOracle) jumped(n *simNode) {
	nb := o.nodes[n]
	nb.jumped = max(o.s.now, nb.stalled) + 1
	for k := range nb.shares {
		o.s.fleet.forget(n, k)
	}
	for i := range nb.blind {
		nb.blind[i] = nb.jumped
	}
	for _, sh := range nb.shares {
		sh.forget()
	}
}

// serverJumped: the same for one server's clock and all nodes.
func (o *nodeOracle) serverJumped(v *simServer) {
	v.lose()
	v.jumped = o.s.now
	for n, nb := range o.nodes {
		for k := range nb.shares {
			if !n.dead && o.books[k] != nil && o.books[k].server == v {
				o.s.fleet.forget(n, k)
			}
		}
		for i := range nb.blind {
			if o.s.serverOf(i) == v {
				nb.blind[i] = max(nb.blind[i], o.s.now+1) // its own clock may stand still for longer
			}
		}
		for k, sh := range nb.shares {
			if o.books[k] != nil && o.books[k].server == v {
				sh.forget()
			}
		}
	}
}
