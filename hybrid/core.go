package hybrid

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// core is the reconciler: it decides what to send and when, and what a reply,
// an error or the passing of time changes. It is a single-threaded state
// machine without goroutines, clocks or sources of chance of its own; step is
// its only entry. The driver (driver.go) gives it a goroutine, timers and
// Redis; a simulator gives it virtual ones.
//
// Exactly once: the units that a shard has sent form a flight under one
// sequence number. A flight whose fate is unknown is sent again, the same,
// under the same number, until Redis says that it has booked it; only then is
// the next one made. Redis keeps the number beside the data and so notices
// both a flight that it knows and data that it has lost.
type core struct {
	cfg   coreConfig
	rng   *rand.Rand
	ids   identities
	node  string // our name, until somebody else is seen to use it
	link  *table.Link
	keys  redisstore.Keyspace
	each  func(func(*table.Counter) bool) // visits every live counter
	stats *counters

	now   int64 // pace: what timers run on, ns
	local int64 // the counters' time, ns

	state   State
	nodes   int64
	floor   int64 // nodes are at least so many, they may not have come back yet,
	floorTo int64 // until then
	fall    int64 // the most nodes told of since
	fallAt  int64 // fewer than there were have been told of; 0: they have not
	shards  []shard
	servers []*server
	turn    int  // server to look at first, so that all get their turn
	remode  bool // shards have changed what a unit weighs
	pipes   map[uint64]*pipe
	overdue map[uint64]*load // pipelines that have timed out, and whose calls have not ended
	lastID  uint64
	backoff int   // probes that failed in a row
	downAt  int64 // since when a server is down; 0: none is
	// Since when not all was well: a server that returns may fail again at once.
	outageAt int64
	reason   string // why the latest exchange failed, and its error
	cause    error
	mismatch string // says that others use another layout, which is not shared
	news     bool   // these have changed
	beatAt   int64  // next heartbeat or probe
	beat     *beat  // the one under way
	alarm    bool   // data was lost: ask all shards, one beat after the other
	hurry    int64  // so many of those beats are left
	doubt    bool   // the latest one has failed
	reseed   int64  // when to tell Redis anew what it has lost; 0: nothing lost
	wounded  []quarantined
	flushes  []*flush
	wheel    *wheel
	activeAt int64 // when counters were handed over last

	out []effect
}

// coreConfig is what the core needs of [Options], all times in nanoseconds.
type coreConfig struct {
	interval, maxLag           int64
	heartbeat                  int64
	linger                     int64
	minBackoff, maxBackoff     int64
	retry, quarantine          int64
	timeout                    int64 // of an exchange
	maxBatch, maxPipes         int
	shardsPerPipe, resyncPipe  int
	degradeAfter               int
	expectedNodes              int64
	fallback                   Fallback
	resyncPaceMin, resyncRange int64
}

// shard is the state of one group of keys.
type shard struct {
	server  *server
	rounds  round // of exchanges for it that failed
	failing int64 // pace, when the first of those began
	missed  bool  // there was an outage, and it is not told all of it yet
	weighs  bool  // its units count by the fallback policy

	node   string // the name under which these are counted: the core's, or until the flight ends the one before
	seq    int64  // number of the latest flight
	acked  int64  // number of the latest flight that Redis has booked
	flight *flight
	asks   bool   // only the fate of the flight is asked for, under the next number
	rest   []item // of a flight that was taken apart: they travel before all others
	pipe   uint64 // pipeline that carries the flight now; 0: none
	accept bool   // Redis has lost this shard's number: have it take ours
	lost   bool   // a loss is known and not repaired yet
	retry  int64  // do not send the flight again before

	normal, urgent, backlog []queued
	normalAt, urgentAt      int64 // when the queue is due; 0: it is empty
	takenNormal             int64 // counters ever taken from normal and backlog
	takenUrgent             int64
	reseed                  bool
	prune                   int // look for dead counters in normal when it is as long
}

// minPrune is the shortest queue that is searched for dead counters. While
// Redis is away nobody takes counters out of the queues, but the table goes on
// forgetting them.
const minPrune = 64

// queued is a counter that is to report, and when it was put into its queue.
type queued struct {
	c  *table.Counter
	at int64 // pace
}

// flight is a batch on its way: which counters, and what they sent.
type flight struct {
	items  []item
	cost   int64 // estimate, ns
	tries  int
	nonce  uint64 // so that Redis can tell it from that of a copy of this process
	unsure bool   // one of them may have been booked without an answer
	silent int    // so many times in a row there was no answer
	part   bool   // of a flight that was taken apart
}

type item struct {
	c      *table.Counter
	rule   *limit.Rule
	units  int64
	back   bool // something is handed back
	raised bool
	// Redis has booked it, which is known without its state: that is only read. So
	// many of its units were forgiven then.
	booked   bool
	forgiven int64
}

type pipe struct {
	load   *load
	shards []int
	sent   int64 // local time
	at     int64 // pace
	cost   int64 // of its flights, ns
}

type quarantined struct {
	c  *table.Counter
	at int64
}

// flush is a request to reconcile all that is waiting now.
type flush struct {
	id    uint64
	marks map[int]*flushMark
}

type flushMark struct {
	normal, urgent int64   // taken counts that cover the request
	boarded        bool    // they have been reached
	flight         *flight // and this carries the last of it
}

// Events.
type (
	evTick    struct{} // time has passed, or counters are waiting
	evReplies struct {
		id       uint64
		recv     int64 // local time
		outcomes []redisstore.Outcome
	}
	evTimeout struct{ id uint64 } // the exchange has overrun its deadline
	evFreed   struct{ id uint64 } // one that had has ended
	evBeat    struct {
		id    uint64
		recv  int64
		addrs []string // of the servers of all shards, see [redisstore.Store.Servers]
		beat  redisstore.Beat
		err   error
	}
	evFlush struct {
		id  uint64
		all bool // refresh every live counter, not only report what is pending
	}
	evForget struct{ id uint64 } // nobody waits for that flush any more
)

type event any

// Effects.
type (
	efSend struct {
		id      uint64
		batches []*redisstore.Batch
	}
	efBeat struct {
		id     uint64
		node   string
		shards []int
	}
	efName    struct{ node string } // the node goes by this name from now on
	efState   struct{ state State }
	efEvent   struct{ event Event }
	efFlushed struct {
		id  uint64
		err error
	}
)

type effect any

func newCore(cfg coreConfig, rng *rand.Rand, ids identities, link *table.Link, keys redisstore.Keyspace, shards int,
	each func(func(*table.Counter) bool), stats *counters) *core {
	c := &core{
		cfg: cfg, rng: rng, ids: ids, node: ids.name(), link: link, keys: keys, each: each, stats: stats,
		wheel: newWheel(cfg.interval, cfg.maxLag, rng.Int64N(cfg.interval)), activeAt: math.MinInt64 / 2,
		nodes: 1, shards: make([]shard, shards), pipes: map[uint64]*pipe{}, overdue: map[uint64]*load{},
		state: State{Mode: Resyncing, Reason: "starting", Nodes: 1},
	}
	common := newLoad(&cfg)
	for i := range c.shards {
		v := &server{shards: []int{i}, load: common}
		c.shards[i].server, c.shards[i].node, c.servers = v, c.node, append(c.servers, v)
	}
	if cfg.expectedNodes > 1 {
		c.expectNodes(cfg.expectedNodes)
	}
	link.SetFallback(cfg.fallback.weight(c.nodes))
	return c
}

// expectNodes lets a new core count so many nodes until it has heard of them,
// and their fair shares from the first check on: whether Redis is away is known
// only when an exchange has failed, and until then each process of a fleet that
// starts would admit the whole limit. Its units weigh more, but the reports of
// them are as urgent as ever, so that one exchange ends it if Redis is there.
func (c *core) expectNodes(n int64) {
	c.nodes, c.state.Nodes = n, int(n)
	c.link.SetNodes(n)
	c.holdNodes(math.MaxInt64)
	if c.cfg.fallback != FairShare {
		return
	}
	for i := range c.shards {
		c.shards[i].weighs = true
	}
	c.link.SetMode(c.cfg.fallback.weight(n), false)
}

// step handles one event. now is the time that timers run on, localNow the
// counters' time; both in ns. The effects are valid until the next step.
func (c *core) step(now, localNow int64, ev event) []effect {
	c.now, c.local = max(now, c.now), max(localNow, c.local)
	c.link.SetLag(c.now - c.local)
	clear(c.out)
	c.out = c.out[:0]
	if c.state.Since.IsZero() {
		c.state.Since = time.Unix(0, c.local)
	}
	c.drain()
	switch ev := ev.(type) {
	case evTick:
	case evReplies:
		c.onReplies(ev)
	case evTimeout:
		c.onTimeout(ev.id)
	case evFreed:
		if v := c.overdue[ev.id]; v != nil {
			v.slots++
			delete(c.overdue, ev.id)
		}
	case evBeat:
		c.onBeat(ev)
	case evFlush:
		c.onFlush(ev)
	case evForget:
		c.dropFlush(ev.id)
	}
	c.timers()
	c.assess() // twice, so that nobody misses that Redis has returned
	c.checkReturned()
	c.assess()
	if c.remode {
		c.applyUnplaced()
	}
	c.pump()
	c.checkFlushes()
	return c.out
}

func (c *core) emit(e effect) { c.out = append(c.out, e) }

func (c *core) newID() uint64 {
	c.lastID++
	return c.lastID
}

// written returns the shards in which Redis keeps a record of this node, under the
// name that it has now: that under an earlier one is somebody else's.
func (c *core) written() (shards []int) {
	for i := range c.shards {
		if c.shards[i].seq > 0 && c.shards[i].node == c.node {
			shards = append(shards, i)
		}
	}
	return shards
}

// jitter returns d times a random factor from lo to hi.
func (c *core) jitter(d int64, lo, hi float64) int64 {
	return int64(float64(d) * (lo + (hi-lo)*c.rng.Float64()))
}

// drain sorts the counters that checks have handed over into their shards.
func (c *core) drain() {
	c.link.Drain(func(k *table.Counter, urgent bool) {
		c.activeAt = c.now
		c.enqueue(k, urgent)
	})
}

func (c *core) enqueue(k *table.Counter, urgent bool) {
	// At once, though it may report later: until its shard is known, a window goes by the
	// clock of another server.
	s := &c.shards[k.Shard(c.local, c.keys.Shard)]
	if urgent {
		s.urgent = append(s.urgent, queued{k, c.now})
		if s.urgentAt == 0 {
			s.urgentAt = c.now + c.cfg.linger
		}
		return
	}
	c.wheel.add(k, c.now+max(k.Due(), c.local)-c.local)
}

// ready queues a counter whose time to report has come.
func (c *core) ready(k *table.Counter) {
	s := &c.shards[k.Shard(c.local, c.keys.Shard)]
	if len(s.normal) >= max(s.prune, minPrune) {
		before := len(s.normal)
		s.normal = slices.DeleteFunc(s.normal, func(q queued) bool { return q.c.Dropped() })
		s.takenNormal += int64(before - len(s.normal))
		s.prune = 2 * len(s.normal)
	}
	s.normal = append(s.normal, queued{k, c.now})
	if s.normalAt == 0 {
		s.normalAt = c.now
	}
}

// timers does what is due by now, other than sending.
func (c *core) timers() {
	c.wheel.due(c.now, c.ready)
	if c.beat == nil && c.now >= c.beatAt {
		c.sendBeat()
	}
	for len(c.wounded) > 0 && c.now >= c.wounded[0].at {
		if k := c.wounded[0].c; k.Requeue() {
			c.enqueue(k, false)
		}
		c.wounded = c.wounded[1:]
	}
	if c.reseed != 0 && c.now >= c.reseed {
		c.reseedNow()
	}
}

// wakeAt returns when the next step is due if nothing happens, and whether
// the core may sleep until then or an event (see [table.Link.Sleep]).
func (c *core) wakeAt() (at int64, sleep bool) {
	at = c.now + c.cfg.heartbeat
	sooner := func(t int64) {
		if t != 0 {
			at = min(at, t)
		}
	}
	if c.beat == nil {
		sooner(c.beatAt)
	}
	if len(c.wounded) > 0 {
		sooner(c.wounded[0].at)
	}
	sooner(c.reseed)
	sooner(c.wheel.next())
	sleep = c.now-c.activeAt >= c.cfg.interval
	for i := range c.shards {
		s := &c.shards[i]
		t, queued := c.due(s)
		sleep = sleep && !queued
		if s.pipe == 0 && s.server.load.free(s.missed) {
			sooner(t)
		}
	}
	if !sleep {
		sooner(c.wheel.after(c.now))
	}
	return at, sleep
}
