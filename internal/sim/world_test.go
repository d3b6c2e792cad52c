package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// sim runs several cores with real counters against models of Redis, over a
// network that loses, delays and doubles messages, in virtual time and from
// one seed. It has one thread; every event happens at an instant of the heap.
type sim struct {
	t     *testing.T // nil: failures panic with a simFailure
	seed  uint64
	rng   *rand.Rand
	calls *rand.Rand // of the calls beyond the plain check, so that adding one changes no other seed
	*simTime

	opt     Options
	redis   *modelRedis // of the first server
	servers []*simServer
	skew    int64 // of all servers' clocks
	nodes   []*simNode
	gone    []*simNode // crashed
	born    int        // nodes ever made
	rules   []*limit.Rule
	keys    int
	// The nodes do not know where the shards are, as with a client of an unknown type.
	unmapped bool
	// What they take for it instead, while their client has not heard yet that shards have
	// moved.
	outdated []string
	// A heartbeat asks for the ledger of the first shard in the call that enters the node,
	// as it does in fact. The seeds were made when it took a call by itself.
	oneCall bool

	rates
	far      int64 // ns that each way of a message takes longer
	jitter   int64 // and up to so many more
	patience int64 // the longest deadline of an exchange so far, ns
	down     bool  // no server accepts connections
	healed   bool  // no fault may begin any more
	// Some calls hand units back.
	refunds bool
	air     *simAir    // nil: there are no notices
	exact   *exactPlay // nil: nothing is taken exactly
	oracle  *nodeOracle
	fleet   *simFleet
	trace   uint64
	log     simLog
	plan    *simPlan // nil: the test itself says what happens
}

// simTime is the time of a world, and what will happen then.
type simTime struct {
	now   int64 // true time, ns
	queue simQueue
	count int64 // events ever
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
	old[len(old)-1] = simEvent{}
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

	// What a machine promises of itself.
	simPipelines = 4                     // to a server at once, at the most
	simRetry     = 30 * time.Millisecond // before a failed flight is sent again, on average
	simEvicted   = 64                    // in a queue, counters that are evicted stay if they are so few
)

// newSim returns a world of one server without faults.
func newSim(t *testing.T, seed uint64, nodes int, rules ...*limit.Rule) *sim {
	s := emptySim(t, seed, Options{SyncInterval: simInterval, MaxLag: simInterval, HeartbeatInterval: simHeartbeat, Shards: simShards}, 1, rules)
	s.oracle.loose = true // the tests that use it break things behind its back
	for range nodes {
		s.addNode(Options{})
	}
	return s
}

// emptySim returns a world without nodes, which one goroutine plays. Without a test (nil) it is up to
// the caller how often.
func emptySim(t *testing.T, seed uint64, o Options, servers int, rules []*limit.Rule) *sim {
	if t != nil {
		t.Helper()
		oneGoroutine(t)
	}
	s := &sim{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0xfee1)), simTime: &simTime{now: simStart},
		opt: o.withDefaults(), rules: rules, keys: 5, trace: 14695981039346656037,
	}
	s.opt.PollOnly = true // see withNotices
	s.oracle, s.fleet = newOracle(s), newSimFleet(s)
	for i := range servers {
		v := &simServer{s: s, id: i, model: newModelRedis(), clock: simClock{at: simStart, base: simStart}}
		s.servers = append(s.servers, v)
	}
	s.redis = s.servers[0].model
	return s
}

func (s *sim) keyspace() redisstore.Keyspace {
	k, err := redisstore.NewKeyspace("hl", s.opt.Shards)
	if err != nil {
		panic(err)
	}
	return k
}

// layout says what the nodes of this world must agree on.
func (s *sim) layout() string {
	return s.keyspace().Layout()
}

// serverOf returns the server that a shard lives on.
func (s *sim) serverOf(shard int) *simServer { return s.servers[shard%len(s.servers)] }

// addrs returns what a client says of where the shards are.
func (s *sim) addrs() (list []string) {
	if s.outdated != nil {
		return s.outdated
	}
	for shard := range s.opt.Shards {
		if !s.unmapped {
			list = append(list, fmt.Sprint("server", s.serverOf(shard).id))
		}
	}
	return list
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

// outage has all servers refuse connections, or accept them again.
func (s *sim) outage(on bool) {
	for _, n := range s.nodes {
		if s.down && !on {
			s.oracle.spared(n)
		}
		s.oracle.nodes[n].before = calls{s.now, n.stats.Beats.Load(), n.stats.Batches.Load()}
	}
	s.down = on
}

func (s *sim) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// note adds an event to the trace and to the record of the latest ones. The
// arguments are kept as they are: only a failure has them formatted.
func (s *sim) note(who int, what string, a, b int64) {
	const prime = 1099511628211
	for _, v := range [...]uint64{uint64(s.now), uint64(who), uint64(a), uint64(b)} {
		s.trace = (s.trace ^ v) * prime
	}
	for _, v := range []byte(what) {
		s.trace = (s.trace ^ uint64(v)) * prime
	}
	s.log.add(logEntry{s.now, who, what, a, b})
}

// failf ends the run.
func (s *sim) failf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	if s.t == nil {
		panic(simFailure{msg})
	}
	s.t.Helper()
	s.t.Fatalf("seed %d: %s\n%s", s.seed, msg, &s.log)
}

type simFailure struct{ msg string }

// simLog keeps the latest events.
type simLog struct {
	ring [120]logEntry
	n    int
}

// logEntry: who is a node's number, or -1 minus a server's.
type logEntry struct {
	at   int64
	who  int
	what string
	a, b int64
}

func (l *simLog) add(e logEntry) {
	l.ring[l.n%len(l.ring)] = e
	l.n++
}

func (l *simLog) String() string {
	var out strings.Builder
	for i := max(l.n-len(l.ring), 0); i < l.n; i++ {
		e := l.ring[i%len(l.ring)]
		who := fmt.Sprint("node", e.who)
		if e.who < 0 {
			who = fmt.Sprint("server", -1-e.who)
		}
		out.WriteString(fmt.Sprintf("%14.6f s  %-8s %-22s %d %d\n", float64(e.at-simStart)/1e9, who, e.what, e.a, e.b))
	}
	return out.String()
}

// load offers checks for a while, of small numbers of units.
func (s *sim) load(d time.Duration, perSecond float64) {
	end := s.now + int64(d)
	for s.now < end {
		s.run(time.Duration(s.rng.ExpFloat64() / perSecond * 1e9))
		s.check(1 + s.rng.Int64N(3))
	}
}

// check asks some node for units of some key.
func (s *sim) check(units int64) {
	n := s.nodes[s.rng.IntN(len(s.nodes))]
	rule := s.rules[s.rng.IntN(len(s.rules))]
	n.take(fmt.Sprint("key", s.rng.IntN(s.keys)), rule, units)
}

// simClock reads true time as a clock that is off, and runs too fast or slow.
type simClock struct {
	at, base int64 // it showed base at the true time at
	ppm      int64
	stopped  bool
}

func (c *simClock) read(now int64) int64 {
	if c.stopped {
		return c.base
	}
	d := now - c.at
	return c.base + d + d/1000*c.ppm/1000
}

// set lets the clock go on from where it is, by d further on.
func (c *simClock) set(now, d, ppm int64, stopped bool) {
	*c = simClock{at: now, base: c.read(now) + d, ppm: ppm, stopped: stopped}
}
