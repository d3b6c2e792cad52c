package sim

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	simSeed = flag.Uint64("sim.seed", 1, "first seed of the simulator")
	simRuns = flag.Int("sim.runs", 40, "number of seeds to run, from the first on")
	simAll  = flag.Bool("sim.all", false, "go on after a seed has failed")
)

// simRun plays one seed: everything, the rates of the faults included, is drawn
// from it. First all sorts of things go wrong; then nothing does, and all must
// come right; then promises are checked that hold only while all is well.
// With a host the real scripts run there, beside the model. The worlds may be changed
// before anything happens there.
func simRun(name string, seed uint64, host luaHost, change ...func(*sim)) (s *sim, failure string) {
	defer func() {
		if r := recover(); r != nil {
			f, ours := r.(simFailure)
			if !ours {
				panic(fmt.Sprintf("seed %d: %v", seed, r))
			}
			failure = fmt.Sprintf("%s\nwhen %v had passed\n%v\n%v\nto see it again: go test -run '%s$' ./internal/sim -sim.seed=%d -sim.runs=1",
				f.msg, time.Duration(s.now-simStart), s.plan, &s.log, name, seed)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 0xfa117))
	p := drawPlan(rng)
	drawLater(p, seed)
	s = emptySim(nil, seed, p.opt, p.servers, p.rules)
	s.plan, s.keys, s.rates, s.unmapped = p, p.keys, p.rates, p.unmapped || p.servers > 1 && seed%4 == 0
	s.calls = rand.New(rand.NewPCG(seed, 0xca11))
	p.reserves, p.together = s.calls.IntN(3) == 0, s.calls.IntN(3) == 0
	p.charges = rand.New(rand.NewPCG(seed, 0xc4a6)).IntN(3) == 0
	debts := []time.Duration{0, 0, -1, 1 + time.Duration(rand.New(rand.NewPCG(seed, 0xdeb7)).Int64N(10_000*ms))}
	s.opt.MaxDebt = debts[seed%4]
	p.opt.MaxDebt = s.opt.MaxDebt
	for _, v := range s.servers {
		v.clock.base += rng.Int64N(7200_000*ms) - 3600_000*ms
		v.clock.ppm = rng.Int64N(401) - 200
		if host != nil {
			v.lua = newLuaRedis(v, host)
			defer v.lua.close()
		}
	}
	for _, f := range change {
		f(s)
	}
	for range p.nodes {
		s.drawClock(s.addNode(Options{}), rng)
	}
	for range p.rounds {
		for _, f := range slices.Concat(faults, laterFaults) {
			for _, kind := range p.kinds {
				if kind == f.kind && rng.IntN(4) == 0 {
					p.say("%v:", time.Duration(s.now-simStart))
					f.do(s, p, rng)
				}
			}
		}
		s.checks(time.Duration(100+rng.IntN(1400))*time.Millisecond, p.perSecond*(0.2+1.6*rng.Float64()))
	}
	s.heal()
	s.settled()
	s.calm()
	if s.air != nil {
		s.air.silence()
	}
	s.settled()
	if s.exact != nil {
		s.exact.finish()
	}
	s.agreed()
	return s, ""
}

// heal ends all faults.
func (s *sim) heal() {
	s.outage(false)
	s.rates, s.healed = rates{}, true
	for _, v := range s.servers {
		v.unite()
		if v.killed {
			v.restart()
		}
		v.thaw()
		v.stay = 0
		for _, key := range slices.Sorted(maps.Keys(v.model.poison)) {
			v.poison(key, false)
		}
	}
	for _, n := range s.nodes {
		for i := range n.wires {
			n.wires[i] = wire{}
		}
	}
}

// settled checks liveness (I5): a back-off's longest pause and a little more
// after the faults have gone, every node is synced and nothing is pending.
func (s *sim) settled() {
	s.run(s.settling())
	for _, n := range s.nodes {
		if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
			s.failf("I5: %s: %v with %d unsynced units after everything has healed", n.name, n.core.State(), n.unsynced())
		}
		s.oracle.conserved(n)
		applied, back := s.fleet.booked(n)
		if acked := n.stats.Acked.Load() + n.stats.Forgiven.Load(); !s.oracle.loose && applied != acked {
			s.failf("I3: Redis applied %d units of %s, which were acked %d", applied, n.name, acked)
		}
		// What leaves its window between two attempts is not reported the second time.
		if known := n.handedBack(); back > known {
			s.failf("I3: Redis has taken off what %s handed back %d times, which knows of %d", n.name, back, known)
		}
		for id := uint64(1); id <= n.asked; id++ {
			if _, ok := n.flushed[id]; !ok {
				s.failf("I5: %s never ended flush %d", n.name, id)
			}
		}
	}
}

// settling is how long it may take until all is well: processes that pause, the
// longest pause between probes, a heartbeat, calls that are under way, the
// backlog, and the keys that were put aside.
func (s *sim) settling() time.Duration {
	d := s.opt.MaxBackoff + s.opt.HeartbeatInterval + 3*time.Second
	if s.plan == nil || slices.Contains(s.plan.kinds, "poison") {
		d += 6 * time.Second
	}
	paused := int64(0)
	for _, n := range s.nodes {
		paused = max(paused, n.paused-s.now)
	}
	d += time.Duration(paused)
	return d
}

// calm offers load while all is well, and has the oracle check what is
// promised then.
func (s *sim) calm() {
	if s.plan != nil {
		s.plan.slow = false // it ended with the faults
	}
	s.oracle.calm = s.now
	s.checks(2*time.Second, max(s.plan.perSecond, 100))
	s.crowd(3 * time.Second)
	s.oracle.calm = 0
}

// agreed checks that all views are what Redis has (I5).
func (s *sim) agreed() {
	// What the first time could be the drift of clocks since a node last heard of
	// a key, it finds missing the second, and the others hear of that the third.
	for range 3 {
		for _, n := range s.nodes {
			n.flush()
		}
		s.run(2 * time.Second)
	}
	for _, n := range s.nodes {
		if booked, ok := n.flushed[n.asked]; !booked {
			s.failf("I5: %s: flush while all is well: done %v, booked %v", n.name, ok, booked)
		}
		for _, k := range n.keys {
			s.agreedOn(n, k)
		}
	}
	s.fleet.restored()
}

func (s *sim) agreedOn(n *simNode, k oracleKey) {
	res := n.take(k.key, k.rule, 0)
	if res.Source != limit.SourceSynced {
		s.failf("I5: %s decides %v %q as %v while all is well", n.name, k.rule, k.key, res.Source)
	}
	bk := s.oracle.books[k]
	rule := n.rule(k.rule)
	off := 10*ms + s.stays()
	low, high := bk.server.remaining(bk.name, rule, -off), bk.server.remaining(bk.name, rule, off)
	if arith.Of(rule).Algorithm == arith.TokenBucket { // what a slow answer has added may still count: see topUp
		low = min(low, max(rule.Limit()-int64(math.Ceil((s.oracle.nodes[n].shares[k].latest-float64(s.now-simStart))/unit(rule))), 0))
	}
	if res.Remaining < low-1 || res.Remaining > high+1 {
		s.failf("I5: %s says that %d of %v %q remain; by what Redis has it is %d to %d", n.name, res.Remaining, k.rule, k.key, low, high)
	}
}

// remaining returns what is left of a key by the server's data, off from now.
func (v *simServer) remaining(key string, r *limit.Rule, off int64) int64 {
	now := v.time()
	if arith.Of(r).Algorithm == arith.TokenBucket {
		level := max(float64(arith.Of(r).Sub(v.model.leakyAt(now, key).tat, arith.Span{NS: now}).NS)-float64(off), 0)
		return max(r.Limit()-int64(math.Ceil(level/unit(r))), 0)
	}
	w := newTally(r, now+off)
	m := v.model.windowAt(now, key)
	for id, u := range m.buckets {
		w.add(id, u, m.last[id])
	}
	return max(r.Limit()-w.count(), 0)
}

// simSeeds plays seeds on all processors and reports those that fail. Each seed is played by
// one goroutine, in which the race detector finds nothing: under it one seed of eight is
// enough.
func simSeeds(t *testing.T, host luaHost, seeds []uint64, change ...func(*sim)) {
	t.Helper()
	if underRace {
		few := seeds[:0]
		for i := 0; i < len(seeds); i += 8 {
			few = append(few, seeds[i])
		}
		seeds = few
	}
	var next, passed atomic.Int64
	var virtual atomic.Int64
	var failed sync.Map
	var wg sync.WaitGroup
	var report oracle.Report
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(seeds)) {
					return
				}
				s, failure := simRun(strings.TrimSuffix(t.Name(), "Kept"), seeds[i], host, change...)
				if failure != "" {
					failed.Store(seeds[i], failure)
					if !*simAll {
						next.Add(1 << 40)
					}
					continue
				}
				passed.Add(1)
				report.Add(simChecks, s.fleet.steps)
				virtual.Add((s.now - simStart) / ms)
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds, %v of virtual time", passed.Load(), (time.Duration(virtual.Load()) * time.Millisecond).Round(time.Second))
	t.Logf("steps in which each check was active:\n%v", &report)
	failed.Range(func(seed, failure any) bool {
		t.Errorf("seed %d: %s", seed, failure)
		return true
	})
}

func seedRange(from uint64, n int) (seeds []uint64) {
	for i := range uint64(n) {
		seeds = append(seeds, from+i)
	}
	return seeds
}

// TestSim plays seeds against the model of Redis.
func TestSim(t *testing.T) {
	simSeeds(t, nil, seedRange(*simSeed, *simRuns))
}

// keptWithScripts are seeds in which the scripts and the model once disagreed: the list
// of nodes had expired by a clock that jumped ahead and back.
var keptWithScripts = []uint64{3000075, 3000088}

// TestSimNotices plays seeds in which nodes tell each other that keys are used up: notices are
// lost, late, doubled, of data that is lost, and forged.
//
// Fault 89: notices only refuse, and never for long after a check.
func TestSimNotices(t *testing.T) {
	simSeeds(t, nil, seedRange(*simSeed, *simRuns), (*sim).withBadNotices)
}

// TestSimExact plays seeds in which nodes let Redis decide: some keys all nodes take only so, of others
// some calls are exact. Every second seed has bad notices as well.
//
// Fault 104: what Redis decides is exact, is booked once, and lost nowhere.
func TestSimExact(t *testing.T) {
	simSeeds(t, nil, append(seedRange(*simSeed, *simRuns), keptExact...), (*sim).withExact)
}

// keptExact are seeds that once failed: an answer that was put off came after a later one, a loss was counted
// twice, a copy handed units back again, a key that a notice refused was not asked for, as a refund had leaked, an
// answer was from before the clock was set, a copy accepted the number before that of a refund,
// a flight that Redis was to accept got another number while an attempt was under way.
var keptExact = []uint64{2359, 841316, 9968, 51142, 31336, 31514, 32358, 34542, 20261129332, 20261129430, 20261129465, 20261130552}

// TestSimExactScripts is the same with the real scripts beside the model.
func TestSimExactScripts(t *testing.T) {
	oneGoroutine(t)
	if strconv.IntSize < 64 {
		t.Skip("the embedded Redis answers integers that fit into an int: needs 64 bits")
	}
	simSeeds(t, miniHost, seedRange(*simSeed, max(*simRuns/20, limittest.Cases(3, 2))), (*sim).withExact)
}

// TestSimExactRealScripts is the same with a redis-server.
func TestSimExactRealScripts(t *testing.T) {
	simSeeds(t, realHost(t), seedRange(*simSeed, max(*simRuns/20, limittest.Cases(3, 2))), (*sim).withExact)
}

// TestSimScripts plays seeds with the real scripts beside the model: whatever
// the one answers, the other must.
func TestSimScripts(t *testing.T) {
	oneGoroutine(t)
	if strconv.IntSize < 64 {
		t.Skip("the embedded Redis answers integers that fit into an int: needs 64 bits")
	}
	simSeeds(t, miniHost, append(seedRange(*simSeed, max(*simRuns/20, limittest.Cases(3, 2))), keptWithScripts...))
}

// TestSimRealScripts is the same with a redis-server.
func TestSimRealScripts(t *testing.T) {
	simSeeds(t, realHost(t), append(seedRange(*simSeed, max(*simRuns/20, limittest.Cases(3, 2))), keptWithScripts...))
}

// TestSimKept plays the seeds that once failed.
func TestSimKept(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var seeds []uint64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, seed)
	}
	simSeeds(t, nil, seeds)
}

// TestSimSameSeedSameTrace: a seed is worth keeping only if it does the same
// each time.
func TestSimSameSeedSameTrace(t *testing.T) {
	for _, seed := range seedRange(*simSeed, min(*simRuns, 8)) {
		a, failure := simRun("TestSim", seed, nil)
		b, again := simRun("TestSim", seed, nil)
		if a.trace != b.trace || failure != again {
			t.Fatalf("seed %d: traces %x and %x\n%s\n%s", seed, a.trace, b.trace, failure, again)
		}
	}
	a, _ := simRun("TestSim", *simSeed, nil)
	if b, _ := simRun("TestSim", *simSeed+1, nil); a.trace == b.trace {
		t.Errorf("seeds %d and the next have the same trace %x", *simSeed, a.trace)
	}
}

// crowd has every node ask for the same key more often than once an interval:
// only then does the promise say what each of them must have heard of.
func (s *sim) crowd(d time.Duration) {
	rule := s.rules[s.rng.IntN(len(s.rules))]
	key := fmt.Sprint("key", s.rng.IntN(s.keys))
	pause := s.opt.SyncInterval / 2 / time.Duration(len(s.nodes))
	units := max(1, rule.Limit()*int64(s.opt.SyncInterval)/int64(2*len(s.nodes))/max(int64(arith.Of(rule).Horizon()), 1))
	for end := s.now + int64(d); s.now < end; {
		for _, n := range s.nodes {
			s.run(pause)
			if s.now >= n.paused {
				n.take(key, rule, 1+s.rng.Int64N(2*units))
			}
		}
	}
}
