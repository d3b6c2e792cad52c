package hybrid

import (
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/remote"
)

var (
	simSeed = flag.Uint64("sim.seed", 0, "run this seed only (0: a fixed range)")
	simRuns = flag.Int("sim.runs", 150, "number of seeds to run")
)

// sim runs several cores with real counters against a model of Redis, over a
// network that loses, delays and doubles messages, in virtual time and from
// one seed.
type sim struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	now   int64
	queue simQueue
	count int64
	redis *modelRedis
	saved *modelRedis
	skew  int64 // Redis' clock minus virtual time
	nodes []*simNode
	rules []*limit.Rule
	keys  int
	trace uint64

	lossReq, lossRep, dup, delay float64
	down                         bool
	wiped                        bool // data was lost at some time
}

type simNode struct {
	s        *sim
	name     string
	core     *core
	link     *local.Link
	stats    counters
	skew     int64
	stopped  int64 // where its clock stands still; 0: it runs
	counters map[string]*local.Counter
	order    []*local.Counter
	wake     int64 // due time of the latest scheduled tick
	admitted int64
	flushed  map[uint64]error
	modes    []Mode
}

type simEvent struct {
	at, id int64
	do     func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].id < q[j].id
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simEvent)) }
func (q *simQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

const (
	ms           = int64(time.Millisecond)
	simStart     = int64(1_700_000_000) * int64(time.Second)
	simTimeout   = 250 * ms
	simShards    = 4
	simInterval  = 100 * time.Millisecond
	simHeartbeat = time.Second
)

func newSim(t *testing.T, seed uint64, nodes int, rules ...*limit.Rule) *sim {
	s := &sim{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0xfee1)), now: simStart, redis: newModelRedis(), rules: rules, keys: 5}
	for i := range nodes {
		s.addNode(fmt.Sprintf("node%d", i), Options{})
	}
	return s
}

func (s *sim) addNode(name string, o Options) *simNode {
	n := &simNode{s: s, name: name, link: local.NewLink(5*simInterval, simShards), counters: map[string]*local.Counter{}, flushed: map[uint64]error{}}
	o.SyncInterval, o.HeartbeatInterval, o.Shards = simInterval, simHeartbeat, simShards
	o = o.withDefaults()
	each := func(f func(*local.Counter) bool) {
		for _, c := range n.order {
			if !f(c) {
				return
			}
		}
	}
	keys := simKeys()
	n.core = newCore(o.coreConfig(), rand.New(rand.NewPCG(s.seed, uint64(len(s.nodes)))), name, n.link, keys, simShards, each, &n.stats)
	s.nodes = append(s.nodes, n)
	s.after(0, func() { n.step(evTick{}) })
	return n
}

func simKeys() remote.Keyspace {
	k, err := remote.NewKeyspace("hl", simShards)
	if err != nil {
		panic(err)
	}
	return k
}

func (s *sim) after(d int64, do func()) {
	s.count++
	heap.Push(&s.queue, simEvent{s.now + d, s.count, do})
}

// run plays events until the given virtual time has passed.
func (s *sim) run(d time.Duration) {
	end := s.now + int64(d)
	for len(s.queue) > 0 && s.queue[0].at <= end {
		e := heap.Pop(&s.queue).(simEvent)
		s.now = e.at
		e.do()
	}
	s.now = end
}

func (s *sim) chance(p float64) bool { return s.rng.Float64() < p }

// latency draws the one-way time of a message.
func (s *sim) latency() int64 {
	d := 100_000 + s.rng.Int64N(400_000)
	if s.chance(s.delay) {
		d += s.rng.Int64N(400 * ms)
	}
	return d
}

func (n *simNode) time() int64 {
	if n.stopped != 0 {
		return n.stopped
	}
	return n.s.now + n.skew
}

func (n *simNode) step(ev event) {
	s := n.s
	effects := slices.Clone(n.core.step(s.now, n.time(), ev))
	for _, e := range effects {
		s.trace = s.trace*1099511628211 ^ uint64(s.now) ^ uint64(len(fmt.Sprintf("%T", e)))
		switch e := e.(type) {
		case efSend:
			n.call(e.id, true, func() func() event {
				replies := make([]remote.Outcome, len(e.batches))
				for i, b := range e.batches {
					replies[i].Reply = s.redis.exec(s.now+s.skew, b)
				}
				return func() event { return evReplies{e.id, n.time(), replies} }
			}, func(err error) event {
				out := make([]remote.Outcome, len(e.batches))
				for i := range out {
					out[i].Err = err
				}
				return evReplies{e.id, n.time(), out}
			})
		case efBeat:
			n.call(e.id, false, func() func() event {
				b := s.redis.beat(s.now+s.skew, n.name, 3*int64(simHeartbeat), e.shards)
				return func() event { return evBeat{e.id, n.time(), b, nil} }
			}, func(err error) event { return evBeat{id: e.id, err: err} })
		case efFlushed:
			n.flushed[e.id] = e.err
		case efState:
			if k := len(n.modes); k == 0 || n.modes[k-1] != e.state.Mode {
				n.modes = append(n.modes, e.state.Mode)
			}
		}
	}
	n.schedule()
}

func (n *simNode) schedule() {
	at, sleep := n.core.wakeAt()
	if sleep && !n.link.Sleep() {
		at = n.s.now
	}
	at = max(at, n.s.now+ms/5)
	n.wake = at
	n.s.after(at-n.s.now, func() {
		if n.wake == at {
			n.step(evTick{})
		}
	})
}

var errDown = errors.New("connection refused")

// call plays one exchange over the bad network.
func (n *simNode) call(id uint64, pipeline bool, server func() func() event, fail func(error) event) {
	s := n.s
	over := false
	s.after(simTimeout, func() {
		if over {
			return
		}
		over = true
		n.step(evTimeout{id})
		if pipeline {
			s.after(s.latency(), func() { n.step(evFreed{}) })
		}
	})
	if s.down {
		s.after(s.latency(), func() {
			if !over {
				over = true
				n.step(fail(errDown))
			}
		})
		return
	}
	if s.chance(s.lossReq) {
		return
	}
	s.after(s.latency(), func() {
		if s.down {
			return
		}
		answer := server()
		if s.chance(s.dup) {
			s.after(s.latency()+s.rng.Int64N(3000*ms), func() { server() })
		}
		if s.chance(s.lossRep) {
			return
		}
		s.after(s.latency(), func() {
			if !over {
				over = true
				n.step(answer())
			}
		})
	})
}

// take asks for units on a node and wakes its core as the driver would.
func (n *simNode) take(key string, rule *limit.Rule, units int64) limit.Result {
	id := rule.Name() + "/" + key
	c := n.counters[id]
	if c == nil {
		c = local.NewCounter(key, rule, n.link, n.time())
		n.counters[id] = c
		n.order = append(n.order, c)
	}
	res, ok := c.Take(n.time(), units, rule)
	if !ok {
		n.s.t.Fatal("a counter died")
	}
	if res.Allowed {
		n.admitted += units
	}
	select {
	case <-n.link.Wake():
		n.s.after(0, func() { n.step(evTick{}) })
	default:
	}
	return res
}

func (n *simNode) unsynced() (sum int64) {
	for _, c := range n.order {
		sum += c.Unsynced()
	}
	return sum
}

// conserved checks invariant I3 on every node: each admitted unit is booked,
// waiting, under way, or counted as expired.
func (s *sim) conserved() {
	s.t.Helper()
	for _, n := range s.nodes {
		if got := n.stats.acked.Load() + n.unsynced() + n.link.Expired(); got != n.admitted {
			s.t.Fatalf("seed %d, %s: admitted %d units, but acked %d + unsynced %d + expired %d",
				s.seed, n.name, n.admitted, n.stats.acked.Load(), n.unsynced(), n.link.Expired())
		}
		applied := s.redis.applied[n.name]
		if !s.wiped && (applied < n.stats.acked.Load() || applied > n.admitted) {
			s.t.Fatalf("seed %d, %s: Redis applied %d units, acked %d, admitted %d", s.seed, n.name, applied, n.stats.acked.Load(), n.admitted)
		}
	}
}

// load offers checks for a while.
func (s *sim) load(d time.Duration, perSecond float64) {
	end := s.now + int64(d)
	for s.now < end {
		s.run(time.Duration(s.rng.ExpFloat64() / perSecond * 1e9))
		n := s.nodes[s.rng.IntN(len(s.nodes))]
		rule := s.rules[s.rng.IntN(len(s.rules))]
		n.take(fmt.Sprint("key", s.rng.IntN(s.keys)), rule, 1+s.rng.Int64N(3))
	}
}

// settled checks liveness (I5): with all faults gone every node is synced with
// nothing pending within the back-off cap and a little more.
func (s *sim) settled() {
	s.t.Helper()
	s.down, s.lossReq, s.lossRep, s.dup, s.delay = false, 0, 0, 0, 0
	s.redis.poison = map[string]bool{}
	s.run(15 * time.Second)
	for _, n := range s.nodes {
		if n.core.state.Mode != Synced || n.unsynced() != 0 {
			s.t.Fatalf("seed %d, %s: %v with %d unsynced units after everything has healed", s.seed, n.name, n.core.state, n.unsynced())
		}
		if got := n.stats.acked.Load() + n.link.Expired(); got != n.admitted {
			s.t.Fatalf("seed %d, %s: admitted %d, acked and expired %d", s.seed, n.name, n.admitted, got)
		}
		if applied := s.redis.applied[n.name]; !s.wiped && applied != n.stats.acked.Load() {
			s.t.Fatalf("seed %d, %s: Redis applied %d units, acked %d", s.seed, n.name, applied, n.stats.acked.Load())
		}
	}
}

func simRules() []*limit.Rule {
	return []*limit.Rule{
		limit.Must(limit.Funnel("funnel", 50, 50, 10*time.Second)),
		limit.Must(limit.SlidingWindow("sliding", 100, 10*time.Second)),
		limit.Must(limit.SlidingWindowBuckets("two", 100, 5*time.Second, 1)),
		limit.Must(limit.FixedWindow("fixed", 100, 3*time.Second)),
		limit.Must(limit.SlidingWindow("long", 1_000_000, 24*time.Hour)),
	}
}

// simRun plays one seed: everything, the fault rates included, is drawn from it.
func simRun(t *testing.T, seed uint64) *sim {
	draw := rand.New(rand.NewPCG(seed, 0xfa117))
	s := newSim(t, seed, 2+draw.IntN(4), simRules()...)
	s.skew = draw.Int64N(7200_000*ms) - 3600_000*ms
	for _, n := range s.nodes {
		n.skew = draw.Int64N(7200_000*ms) - 3600_000*ms
	}
	rate := func() float64 {
		if draw.IntN(2) == 0 {
			return 0
		}
		return draw.Float64() * 0.3
	}
	s.lossReq, s.lossRep, s.dup, s.delay = rate(), rate(), rate(), rate()
	for range 12 {
		switch draw.IntN(8) {
		case 0:
			s.down = !s.down
		case 1:
			s.redis.wipe()
			s.wiped = true
		case 2:
			s.saved = s.redis.snapshot()
		case 3:
			if s.saved != nil {
				s.redis.rollback(s.saved.snapshot())
				s.wiped = true
			}
		case 4:
			rule := s.rules[draw.IntN(len(s.rules))]
			k := simKeys().CounterKey(rule, fmt.Sprint("key", draw.IntN(s.keys)))
			s.redis.poison[k] = !s.redis.poison[k]
		}
		s.load(time.Duration(200+draw.IntN(1500))*time.Millisecond, 20+draw.Float64()*300)
		s.conserved()
	}
	s.settled()
	s.conserved()
	return s
}

func TestSimFaults(t *testing.T) {
	if *simSeed != 0 {
		simRun(t, *simSeed)
		return
	}
	for seed := uint64(1); seed <= uint64(*simRuns); seed++ {
		simRun(t, seed)
	}
}

func TestSimSameSeedSameTrace(t *testing.T) {
	for seed := uint64(7); seed < 12; seed++ {
		if a, b := simRun(t, seed).trace, simRun(t, seed).trace; a != b {
			t.Fatalf("seed %d: traces %x and %x", seed, a, b)
		}
	}
}
