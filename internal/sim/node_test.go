package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// simNode is a process: a core and counters under test, with a clock of its
// own.
type simNode struct {
	s        *sim
	id       int
	name     string // of the process; in Redis it may go by another
	core     *reconcile.Machine
	seen     reconcile.Snapshot // see look
	looked   bool
	fallback reconcile.Fallback
	link     *counter.Link
	stats    reconcile.Stats
	clock    simClock
	skew     int64
	stopped  int64 // where its clock stands still; 0: it runs
	latest   int64 // the latest time that the clock has shown
	wires    []wire
	counters map[oracleKey]*counter.Counter
	order    []*counter.Counter
	rules    map[*limit.Rule]*limit.Rule // what some have become
	keys     []oracleKey                 // of order
	wake     int64                       // due time of the latest scheduled tick
	starved  int64                       // for so long a goroutine that could run waits for a processor
	paused   int64                       // the process does not run until then
	asleep   int64                       // ns of the past in which its clocks stood still
	frozen   int64                       // since when they do; 0: they run
	dead     bool
	admitted int64
	refunded int64           // handed back
	owes     []owed          // of that, what its counters subtract with a later answer
	made     int             // counters
	flushed  map[uint64]bool // by the id of a flush that has ended, whether all was booked
	asked    uint64          // flushes asked for
	modes    []reconcile.Mode
	told     reconcile.State // the latest that it has published
	events   []reconcile.Incident
}

// addNode starts a node. o gives what is not the same for all.
func (s *sim) addNode(o Options) *simNode {
	n := &simNode{
		s: s, id: s.born, name: fmt.Sprint("node", s.born), link: counter.NewLink(s.opt.pace(), s.opt.Shards, s.keyspace().Shard),
		clock:    simClock{at: s.now, base: s.now},
		counters: map[oracleKey]*counter.Counter{}, rules: map[*limit.Rule]*limit.Rule{}, flushed: map[uint64]bool{}, wires: make([]wire, len(s.servers)),
	}
	n.link.SetMaxDebt(s.opt.MaxDebt)
	if s.air != nil {
		s.air.joins(n)
	}
	s.born++
	opt := s.opt
	opt.PollOnly = s.air == nil
	if o.Fallback != 0 {
		opt.Fallback = o.Fallback
	}
	each := func(f func(*counter.Counter) bool) {
		for _, c := range n.order {
			if !f(c) {
				return
			}
		}
	}
	rng := rand.New(rand.NewPCG(s.seed, uint64(n.id)))
	cfg := opt.config()
	cfg.Single, cfg.ShardsPerPipeline = len(s.servers) == 1, s.perPipeline()
	n.fallback = opt.Fallback
	n.core = reconcile.New(reconcile.Parts{Config: cfg, Rand: rng, IDs: n.identities(), Link: n.link, Keys: s.keyspace(), Each: each, Stats: &n.stats})
	if len(s.servers) == 1 {
		n.core.Place(s.addrs())
	}
	s.nodes = append(s.nodes, n)
	s.oracle.joined(n)
	s.after(0, func() { n.step(reconcile.Tick{}) })
	return n
}

// identities makes up names and nonces that no other process has.
func (n *simNode) identities() reconcile.Identities {
	names, nonces := 0, rand.New(rand.NewPCG(n.s.seed, uint64(n.id)<<32|0x0ce))
	return reconcile.Identities{
		Name: func() string {
			if names++; names > 1 {
				return fmt.Sprint(n.name, "-", names)
			}
			return n.name
		},
		Nonce: nonces.Uint64,
	}
}

// look returns what the core shows after its latest step. A look after the next one uses the same memory.
func (n *simNode) look() *reconcile.Snapshot {
	if !n.looked {
		n.core.Snapshot(&n.seen)
		n.looked = true
	}
	return &n.seen
}

// shard returns what the core shows of a shard.
func (n *simNode) shard(i int) reconcile.ShardSnapshot { return n.look().Shards[i] }

// server returns what the core shows of the server of a shard.
func (n *simNode) server(shard int) reconcile.ServerSnapshot {
	is := n.look()
	return is.Servers[is.Shards[shard].Server]
}

// time returns the counters' time, which the limiter keeps from going back.
func (n *simNode) time() int64 {
	if n.stopped != 0 {
		return n.stopped
	}
	n.latest = max(n.latest, n.clock.read(n.pace())+n.skew)
	return n.latest
}

// pace returns the time that timers run on.
func (n *simNode) pace() int64 {
	if n.frozen != 0 {
		return n.frozen - n.asleep
	}
	return n.s.now - n.asleep
}

// deliver hands an event to the core as soon as the process runs.
func (n *simNode) deliver(ev func() reconcile.Event) {
	if n.dead {
		return
	}
	if n.s.now < n.paused {
		n.s.after(n.paused-n.s.now, func() { n.deliver(ev) })
		return
	}
	n.step(ev())
}

func (n *simNode) step(ev reconcile.Event) {
	if n.dead {
		return
	}
	if n.s.now < n.paused {
		n.deliver(func() reconcile.Event { return ev })
		return
	}
	effects := slices.Clone(n.core.Step(n.pace(), n.time(), ev))
	n.subtracted()
	n.looked = false
	for _, e := range effects {
		switch e := e.(type) {
		case reconcile.Send:
			n.sendBatches(e)
		case reconcile.Beat:
			n.sendBeat(e)
		case reconcile.Publish:
			n.tell(e)
		case reconcile.Listen:
			n.listen(e)
		case reconcile.Flushed:
			n.flushed[e.ID] = e.Booked
		case reconcile.Happened:
			n.events = append(n.events, e.Incident)
		case reconcile.NewState:
			n.s.note(n.id, "state "+e.State.Mode.String(), int64(e.State.Nodes), int64(e.State.Down))
			if old := n.told; e.State.Mode == old.Mode && e.State.Mode != reconcile.Degraded && e.State.Nodes == old.Nodes && e.State.Down == old.Down && e.State.NoticesDown == old.NoticesDown && e.State.Reason == old.Reason {
				n.s.failf("I7: %s tells the same state twice: %v", n.name, old)
			}
			n.told = e.State
			if k := len(n.modes); k == 0 || n.modes[k-1] != e.State.Mode {
				n.modes = append(n.modes, e.State.Mode)
			}
		}
	}
	n.s.oracle.stepped(n)
	n.schedule()
}

func (n *simNode) schedule() {
	at, sleep := n.core.WakeAt()
	if sleep && !n.link.Sleep() {
		at = n.pace()
	}
	at = max(at, n.pace()+ms/5)
	n.wake = at
	n.s.after(at-n.pace(), func() {
		if n.wake == at {
			n.step(reconcile.Tick{})
		}
	})
}

// sendBatches plays a pipeline: its batches by server.
func (n *simNode) sendBatches(e reconcile.Send) {
	began := n.s.now
	outcomes := make([]redisstore.Outcome, len(e.Batches))
	tries := make([]*exchange, len(e.Batches))
	byServer := make([][]int, len(n.s.servers))
	for i, b := range e.Batches {
		n.s.note(n.id, "send", int64(b.Shard), b.Seq)
		tries[i] = n.s.oracle.sent(n, b)
		k := n.s.serverOf(b.Shard).id
		byServer[k] = append(byServer[k], i)
	}
	var parts []*part
	var publishErr error
	for k, list := range byServer {
		if len(list) == 0 {
			continue
		}
		v := n.s.servers[k]
		got := make([]redisstore.Outcome, len(list))
		at := make([]int64, len(list))
		parts = append(parts, &part{
			server: v, steps: len(list),
			run: func(i int) {
				if v.copies && v.lost > began && slices.ContainsFunc(e.Batches[list[i]].Ops, func(op report.Report) bool { return takesOff(&op) }) {
					return // no record is left that prevents it, and no connection delivers such a copy
				}
				out := v.exec(n, e.Batches[list[i]])
				if i == len(list)-1 && len(e.Notices) > 0 {
					publishErr = n.s.air.publish(n, e.Channel, reconcile.Message{Node: n.core.Node(), Notices: e.Notices}, 0)
				}
				if !v.copies {
					got[i], at[i] = out, n.s.now
					tries[list[i]].editions = n.s.fleet.editions(e.Batches[list[i]])
					if v.side(n) != v.model {
						tries[list[i]].editions = nil
					}
				}
			},
			accept: func(i int) {
				outcomes[list[i]], tries[list[i]].executed = got[i], at[i]
				if v.broken != nil && v.broken(e.Batches[list[i]].Shard) {
					outcomes[list[i]] = redisstore.Outcome{Err: v.ailment()}
				}
			},
			fail: func(i int, err error) { outcomes[list[i]] = redisstore.Outcome{Err: err} },
		})
	}
	n.call(e.ID, e.Timeout, true, parts, func(late bool, took int64) reconcile.Event {
		out := slices.Clone(outcomes)
		for i, x := range tries {
			if !late && out[i].Err == nil {
				n.s.oracle.answered(n, x, out[i].Reply)
			}
		}
		n.s.note(n.id, "replies", int64(e.ID), int64(len(out)))
		return reconcile.Replies{ID: e.ID, Recv: n.time(), Took: took, Outcomes: out, PublishErr: publishErr}
	})
}

// sendBeat plays a heartbeat: the set of nodes on the first server, and the
// shards where they live.
func (n *simNode) sendBeat(e reconcile.Beat) {
	s := n.s
	beat := redisstore.Beat{Seqs: make([]int64, len(e.Shards)), Times: make([]time.Duration, len(e.Shards))}
	beat.Errs = make([]error, len(e.Shards))
	var ofList, first error // what ails the list of nodes, and the first of the shards
	fail := func(i int, err error) {
		if beat.Errs[i] = err; first == nil {
			first = err
		}
	}
	byServer, with := make([][]int, len(s.servers)), -1
	for i, sh := range e.Shards {
		if beat.Seqs[i] = -1; sh == 0 && s.oneCall {
			with = i
			continue
		}
		k := s.serverOf(sh).id
		byServer[k] = append(byServer[k], i)
	}
	nodes := &part{server: s.servers[0], beat: true, steps: 1}
	var got redisstore.Beat
	var seq int64
	nodes.run = func(int) {
		b := s.servers[0].beat(n, e.Node)
		if e.Channel != "" {
			b.EchoErr = s.air.publish(n, e.Channel, reconcile.Message{}, e.Echo)
		}
		if !s.servers[0].copies {
			if got = b; with >= 0 {
				seq, _ = s.servers[0].seq(n, 0, e.Node)
			}
		}
	}
	nodes.accept = func(int) {
		if with >= 0 {
			beat.Seqs[with], beat.Times[with] = seq, got.Now
		}
		if s.servers[0].listless {
			ofList = errOfKey
			return
		}
		beat.Nodes, beat.Now, beat.Others, beat.Channel, beat.EchoErr = got.Nodes, got.Now, got.Others, got.Channel, got.EchoErr
	}
	nodes.fail = func(_ int, err error) {
		if ofList = err; with >= 0 {
			beat.Errs[with] = err
		}
	}
	parts := []*part{nodes}
	for k, list := range byServer {
		if len(list) == 0 {
			continue
		}
		v := s.servers[k]
		seqs, times := make([]int64, len(list)), make([]time.Duration, len(list))
		parts = append(parts, &part{
			server: v, beat: true, steps: len(list),
			run: func(i int) {
				if q, t := v.seq(n, e.Shards[list[i]], e.Node); !v.copies {
					seqs[i], times[i] = q, t
				}
			},
			accept: func(i int) {
				if v.broken != nil && v.broken(e.Shards[list[i]]) {
					fail(list[i], v.ailment())
					return
				}
				beat.Seqs[list[i]], beat.Times[list[i]] = seqs[i], times[i]
			},
			fail: func(i int, err error) { fail(list[i], err) },
		})
	}
	begun := s.now
	n.call(e.ID, e.Timeout*5/4, false, parts, func(late bool, _ int64) reconcile.Event {
		if !late {
			s.oracle.beaten(n, begun, e.Shards, beat)
		}
		s.note(n.id, "beat", int64(beat.Nodes), int64(len(e.Shards)))
		if ofList != nil {
			first = ofList
		}
		return reconcile.BeatAnswer{ID: e.ID, Recv: n.time(), Addrs: s.addrs(), Beat: beat, Err: first}
	})
}

// rule returns what has become of a rule on this node.
func (n *simNode) rule(r *limit.Rule) *limit.Rule {
	if to := n.rules[r]; to != nil {
		return to
	}
	return r
}

// take asks for units on a node and wakes its core as the driver would.
func (n *simNode) take(key string, rule *limit.Rule, units int64) limit.Result {
	k := oracleKey{rule, key}
	if units > 0 && n.s.exact.kind(k) == alwaysExact {
		n.takeExactly(key, rule, units)
		return limit.Result{}
	}
	return n.ask(k, units)
}

// ask asks for units on a node, and not exactly.
func (n *simNode) ask(k oracleKey, units int64) limit.Result {
	rule, c := k.rule, n.counter(k)
	if units > 0 && n.s.rng.IntN(4) != 0 {
		return n.allow(k, c, units)
	}
	res, ok := c.Ask(n.time(), units, n.rule(rule), true)
	if !ok {
		n.s.failf("a counter died")
	}
	if res.Allowed {
		n.admitted += units
	}
	n.s.oracle.taken(n, k, units, res)
	n.wakeUp()
	return res
}

// allow asks for no more than yes or no, as the hot path does.
func (n *simNode) allow(k oracleKey, c *counter.Counter, units int64) limit.Result {
	rule := n.rule(k.rule)
	allowed, src, ok := allowAlone(c, n.time(), units, rule)
	if !ok {
		n.s.failf("a counter died")
	}
	res := limit.Result{Allowed: allowed, Source: src, Limit: rule.Limit()}
	if allowed {
		n.admitted += units
	} else {
		res.RetryAfter = 1 // it does not say
		if rule.Limit() < units {
			res.RetryAfter = limit.Never
		}
	}
	n.s.oracle.taken(n, k, units, res)
	n.wakeUp()
	return res
}

// takeAtMost asks for what is left, up to a number of units.
func (n *simNode) takeAtMost(key string, rule *limit.Rule, units int64) {
	k := oracleKey{rule, key}
	granted, res, ok := n.counter(k).TakeAtMost(n.time(), units, n.rule(rule))
	if !ok || granted < 0 || granted > units || res.Allowed != (granted > 0 || units == 0) || granted < units && res.Remaining > 0 && n.fallback != reconcile.FailOpen {
		n.s.failf("%d units granted of %d, %+v", granted, units, res)
	}
	n.admitted += granted
	if granted == 0 {
		n.s.oracle.taken(n, k, min(units, 1), res)
	} else {
		n.s.oracle.taken(n, k, granted, res)
	}
	n.wakeUp()
}

// refund hands units back.
func (n *simNode) refund(key string, rule *limit.Rule, units int64) {
	k := oracleKey{rule, key}
	c := n.counter(k)
	before := c.Owed()
	back, taken, ok := c.Refund(n.time(), units, n.rule(rule))
	later := c.Owed() - before
	if !ok || back < 0 || back > taken || taken > units {
		n.s.failf("%d units handed back, and %d taken off, of %d", back, taken, units)
	}
	n.refunded += back
	if later > 0 {
		n.owes = append(n.owes, owed{k, c, before + later, later})
	}
	n.s.oracle.refunded(n, k, taken-later) // it counts every unit in full
	n.wakeUp()
}

// owed is what a counter that owed so many units subtracts with a later answer.
type owed struct {
	k     oracleKey
	c     *counter.Counter
	total int64
	units int64
}

// subtracted notes what counters have subtracted meanwhile: all that they owed, at once.
func (n *simNode) subtracted() {
	n.owes = slices.DeleteFunc(n.owes, func(o owed) bool {
		if o.c.Owed() >= o.total {
			return false
		}
		n.s.oracle.refunded(n, o.k, o.units)
		return true
	})
}

// counter returns the counter of a key, a new one if there is none.
func (n *simNode) counter(k oracleKey) *counter.Counter {
	c := n.counters[k]
	if c == nil {
		c = newAlone(k.key, n.rule(k.rule), n.link, n.time())
		n.counters[k] = c
		n.order, n.keys = append(n.order, c), append(n.keys, k)
		n.made++
		n.s.oracle.created(n, k)
	}
	return c
}

// wakeUp has the core look at what the counters have handed over.
func (n *simNode) wakeUp() {
	select {
	case <-n.link.Wake():
		n.s.after(0, func() { n.step(reconcile.Tick{}) })
	default:
	}
}

// forgetIdle drops the counters that a full table could: those that have
// nothing to report.
func (n *simNode) forgetIdle() {
	order, keys := n.order, n.keys
	n.order, n.keys = nil, nil
	for i, c := range order {
		if _, ok := c.Drop(counter.Used, n.time()); ok {
			delete(n.counters, keys[i])
			n.s.oracle.dropped(n, keys[i])
		} else {
			n.order, n.keys = append(n.order, c), append(n.keys, keys[i])
		}
	}
}
