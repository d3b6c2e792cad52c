package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	everySteps = flag.Int("sim.every", limittest.Cases(3, 2), "length of the histories of TestSimEveryHistory")
	firstPair  = flag.Int("sim.pair", 1, "number of the first pair of steps of TestSimSixSteps")
	everyPairs = flag.Int("sim.pairs", 1, "number of pairs of steps of TestSimSixSteps")
)

// everyKey is the key of all steps.
const everyKey = "key"

// breaks is the name of the step that breaks it.
const breaks = "the key is broken or mended"

// step is one thing that happens in a history.
type step struct {
	name string
	node bool // a node does it, which do is given
	do   func(s *sim, n *simNode)
}

// stepsOf returns what may happen to a key.
func stepsOf(rule *limit.Rule) []step {
	k := oracleKey{rule, everyKey}
	server := func(s *sim) *simServer { return s.servers[0] }
	cut := func(s *sim, n *simNode, w wire) {
		n.wires[0] = w
		s.after(150*ms, func() {
			n.wires[0] = wire{}
			s.oracle.slow = max(s.oracle.slow, s.now)
		})
	}
	return []step{
		{"takes 3", true, func(_ *sim, n *simNode) { n.ask(k, 3) }},
		{"refunds 2", true, func(_ *sim, n *simNode) { n.refund(everyKey, rule, 2) }},
		{"charges 4", true, func(_ *sim, n *simNode) { n.charge(everyKey, rule, 4) }},
		{"takes 2 exactly", true, func(_ *sim, n *simNode) { n.takeExactly(everyKey, rule, 2) }},
		{"reserves 3", true, func(_ *sim, n *simNode) { n.reserve(everyKey, rule, 3) }},
		{"resets", true, func(_ *sim, n *simNode) { n.set(k, 0) }},
		{"sets 3", true, func(_ *sim, n *simNode) { n.set(k, 3) }},
		{"loses its requests", true, func(s *sim, n *simNode) { cut(s, n, wire{dropTo: true}) }},
		{"loses its replies", true, func(s *sim, n *simNode) { cut(s, n, wire{dropRep: true}) }},
		{"pauses", true, func(_ *sim, n *simNode) { n.pause(300*ms, false) }},
		{"is replaced", true, func(s *sim, n *simNode) {
			n.crash()
			s.addNode(Options{})
		}},
		{"forgets idle keys", true, func(_ *sim, n *simNode) { n.forgetIdle() }},
		{"has half the limit", true, func(_ *sim, n *simNode) { n.rules[rule] = half(rule) }},
		{"an exchange", false, func(s *sim, _ *simNode) { s.run(150 * time.Millisecond) }},
		{"67 s pass", false, func(s *sim, _ *simNode) { s.run(67 * time.Second) }},
		{"Redis loses the key", false, func(s *sim, _ *simNode) { server(s).forget(s.keyspace().CounterKey(rule, everyKey)) }},
		{"Redis loses everything", false, func(s *sim, _ *simNode) { server(s).wipe() }},
		{breaks, false, func(s *sim, _ *simNode) {
			name := s.keyspace().CounterKey(rule, everyKey)
			server(s).poison(name, !server(s).model.poison[name])
		}},
		{"Redis is copied", false, func(s *sim, _ *simNode) { server(s).saved = server(s).save() }},
		{"Redis falls back to the copy", false, func(s *sim, _ *simNode) {
			if old := server(s).saved; old != nil {
				server(s).rollback(old)
			}
		}},
		{"the other master serves a node", false, func(s *sim, _ *simNode) {
			if server(s).split == nil {
				server(s).divide(s.nodes[1:])
				s.after(150*ms, server(s).unite)
			}
		}},
		{"Redis' clock goes ahead by 5 s", false, func(s *sim, _ *simNode) { server(s).jump(5000 * ms) }},
		{"Redis' clock goes back by 5 s", false, func(s *sim, _ *simNode) { server(s).jump(-5000 * ms) }},
		{"an outage begins or ends", false, func(s *sim, _ *simNode) { s.outage(!s.down) }},
	}
}

// half returns a rule with half the limit.
func half(r *limit.Rule) *limit.Rule {
	l := r.Limit() / 2
	switch arith.Of(r).Algorithm {
	case arith.TokenBucket:
		return limit.Must(limit.TokenBucket(r.Name(), arith.Of(r).Units, r.Period(), l))
	case arith.CalendarQuota:
		return limit.Must(limit.Quota(r.Name(), l, limittest.CalendarOf(r)))
	}
	return limit.Must(limit.SlidingWindow(r.Name(), l, r.Period()))
}

// deed is a step and who does it.
type deed struct {
	step
	by    int
	pause time.Duration // before the next one
}

func (d deed) String() string {
	if d.node {
		return fmt.Sprintf("node%d %s, %v,", d.by, d.name, d.pause)
	}
	return fmt.Sprintf("%s, %v,", d.name, d.pause)
}

// usualPause is shorter than an interval, so that several steps happen between two reports.
const usualPause = 20 * time.Millisecond

// deedsOf returns the deeds with which a history can go on. The nodes are alike, so the first that acts is
// node 0.
func deedsOf(steps []step, before []deed) (list []deed) {
	acted := false
	for _, d := range before {
		acted = acted || d.node
	}
	for _, st := range steps {
		if list = append(list, deed{st, 0, usualPause}); st.node && acted {
			list = append(list, deed{st, 1, usualPause})
		}
	}
	return list
}

// setting is where histories are played.
type setting struct {
	rule    *limit.Rule
	notices bool
	host    luaHost // of the real scripts, beside the model; nil: the model alone
}

// play plays a history. Then all comes right, and must agree. It returns what does not hold.
func (where setting) play(history []deed) (failure string) {
	var s *sim
	rule := where.rule
	defer func() {
		if r := recover(); r != nil {
			f, ours := r.(simFailure)
			if !ours {
				panic(fmt.Sprintf("%v: %v", history, r))
			}
			failure = fmt.Sprintf("%v, notices %v: %v\n%s\n%v", rule, where.notices, history, f.msg, &s.log)
		}
	}()
	s = emptySim(nil, 1, Options{
		SyncInterval: simInterval, MaxLag: 300 * time.Millisecond, HeartbeatInterval: simHeartbeat, Shards: 1,
		MinBackoff: 100 * time.Millisecond, MaxBackoff: 500 * time.Millisecond, CommandTimeout: time.Duration(simTimeout),
	}, 1, []*limit.Rule{rule})
	s.plan, s.keys, s.calls = &simPlan{perPipe: 16}, 1, rand.New(rand.NewPCG(1, 2))
	if slices.ContainsFunc(history, func(d deed) bool { return d.name == breaks }) {
		s.plan.kinds = []string{"poison"} // all waits until such keys were tried again
	}
	s.exact = &exactPlay{s: s, rng: rand.New(rand.NewPCG(1, 3)), kinds: map[oracleKey]exactKind{{rule, everyKey}: sometimesExact}, records: map[oracleKey]*exactRecord{}}
	if where.notices {
		s.withNotices()
	}
	if where.host != nil {
		s.servers[0].lua = newLuaRedis(s.servers[0], where.host)
		defer s.servers[0].lua.close()
	}
	for range 2 {
		s.addNode(Options{})
	}
	s.run(30 * time.Millisecond) // they know of each other
	for _, d := range history {
		n := s.nodes[d.by]
		if d.node && s.now < n.paused {
			s.run(time.Duration(n.paused - s.now))
		}
		d.do(s, n)
		s.run(d.pause)
	}
	s.heal()
	s.settled()
	s.agreed()
	s.alike(rule)
	return ""
}

// alike checks that all nodes know what Redis has, but for the unit that leaves meanwhile.
func (s *sim) alike(rule *limit.Rule) {
	v, name := s.servers[0], s.keyspace().CounterKey(rule, everyKey)
	low, high := v.remaining(name, rule, -10*ms), v.remaining(name, rule, 10*ms)
	for _, n := range s.nodes {
		c := n.counters[oracleKey{rule, everyKey}]
		if c == nil {
			continue
		}
		e, ok := c.Explain(n.time())
		if left := max(rule.Limit()-e.Known, 0); ok && e.Answered != 0 && (left < low-1 || left > high+1) {
			s.failf("I5: %s knows of %d units, Redis has %d to %d of %d left", n.name, e.Known, low, high, rule.Limit())
		}
	}
}

// everyRules are the rules of the histories. Their periods are longer than a history takes to end, so that units
// which were lost are missed.
var everyRules = []*limit.Rule{
	limit.Must(limit.TokenBucket("bucket", 5, time.Minute, 5)),
	limit.Must(limit.SlidingWindow("window", 5, time.Minute)),
	limit.Must(limit.Quota("quota", 5, limit.Calendar{Unit: limit.Day})),
}

// playAll plays the histories that each passes on, on all processors, and reports those that fail.
func (where setting) playAll(t *testing.T, each func(play func([]deed))) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // little is alive, and much is made
	jobs, played, failed := make(chan []deed, 64), atomic.Int64{}, atomic.Int64{}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for h := range jobs {
				played.Add(1)
				if failure := where.play(h); failure != "" && failed.Add(1) <= 3 {
					t.Error(failure)
				}
			}
		})
	}
	each(func(h []deed) { jobs <- h })
	close(jobs)
	wg.Wait()
	t.Logf("%d histories, %d have failed", played.Load(), failed.Load())
}

// TestSimEveryHistory plays all histories of some steps of two nodes and one Redis.
//
// Fault 116: every order of steps.
func TestSimEveryHistory(t *testing.T) {
	oneGoroutine(t)
	for _, rule := range everyRules {
		t.Run(rule.Name(), func(t *testing.T) {
			setting{rule: rule}.playEvery(t, stepsOf(rule), *everySteps)
		})
	}
}

// playEvery plays all histories of a length.
func (where setting) playEvery(t *testing.T, steps []step, length int) {
	t.Helper()
	where.playAll(t, func(play func([]deed)) {
		var grow func(h []deed)
		grow = func(h []deed) {
			if len(h) == length {
				play(h)
				return
			}
			for _, d := range deedsOf(steps, h) {
				grow(append(h[:len(h):len(h)], d))
			}
		}
		grow(nil)
	})
}

// TestSimSixSteps plays all histories of six steps of which each is a take, an exchange, or one of a pair of
// others; without CI=true it plays those of four. There are 231 pairs, of which CI plays one, by the commit.
// To play more: CI=true go test -sim.pair=0 -sim.pairs=231, which takes some hours.
//
// Fault 116: every order of six steps.
func TestSimSixSteps(t *testing.T) {
	oneGoroutine(t)
	for _, rule := range everyRules {
		always, others := []step{}, []step{}
		for _, st := range stepsOf(rule) {
			if st.name == "takes 3" || st.name == "an exchange" {
				always = append(always, st)
			} else {
				others = append(others, st)
			}
		}
		var pairs [][]step
		for i, a := range others {
			for _, b := range others[:i] {
				pairs = append(pairs, append(always[:2:2], b, a))
			}
		}
		for i := range *everyPairs {
			steps := pairs[(*firstPair+i)%len(pairs)]
			t.Run(fmt.Sprintf("%s, %s, %s", rule.Name(), steps[2].name, steps[3].name), func(t *testing.T) {
				setting{rule: rule}.playEvery(t, steps, limittest.Cases(6, 4))
			})
		}
	}
}

// playDrawn plays histories of eight steps that the seed draws.
func (where setting) playDrawn(t *testing.T, histories int) {
	t.Helper()
	steps, rng := stepsOf(where.rule), rand.New(rand.NewPCG(*simSeed, 0xe7e))
	pauses := []time.Duration{time.Millisecond, usualPause, 120 * time.Millisecond}
	where.playAll(t, func(play func([]deed)) {
		for range histories {
			var h []deed
			for range 8 {
				list := deedsOf(steps, h)
				d := list[rng.IntN(len(list))]
				d.pause = pauses[rng.IntN(len(pauses))]
				h = append(h, d)
			}
			play(h)
		}
	})
}

// TestSimLongHistories plays drawn histories with and without notices.
//
// Fault 116: orders of more steps.
func TestSimLongHistories(t *testing.T) {
	oneGoroutine(t)
	for _, rule := range everyRules {
		for _, notices := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, notices %v", rule.Name(), notices), func(t *testing.T) {
				setting{rule: rule, notices: notices}.playDrawn(t, 12**simRuns)
			})
		}
	}
}

// TestSimRealScriptsHistories plays drawn histories with the scripts on a redis-server beside the model.
//
// Fault 116: orders of more steps, on a server.
func TestSimRealScriptsHistories(t *testing.T) {
	host := realHost(t)
	for _, rule := range everyRules {
		t.Run(rule.Name(), func(t *testing.T) {
			setting{rule: rule, host: host}.playDrawn(t, *simRuns)
		})
	}
}
