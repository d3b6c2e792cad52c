package reconcile

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// Machine is the reconciler: a single-threaded state machine, without a source of randomness of its own.
// Events enter by [Machine.Step] only. A Machine is made by [New], and is not safe for concurrent use.
//
// Exactly once: the units that a shard reports together are a flight, which has a sequence
// number. While it is unknown whether Redis has applied a flight, the same flight is sent
// again under the same number. Only when Redis has answered that it is applied is the next
// flight made. Redis keeps the number beside the data. By the number Redis recognises a
// flight that it has already applied, and notices that data was lost.
//
// There are two clocks, both in ns. Timers run on the timer clock, which is the system's.
// Checks are decided on the counter clock, which is the Clock in the options of the limiter.
type Machine struct {
	cfg   Config
	rng   *rand.Rand
	ids   Identities
	node  string // name of this node; it changes if another process is seen to use it
	link  *counter.Link
	keys  redisstore.Keyspace
	each  func(func(*counter.Counter) bool) // visits every live counter
	stats *Stats

	now   int64 // time of this step on the timer clock
	local int64 // time of this step on the counter clock

	members    members
	joining    joining
	shards     []shard
	servers    []*server
	nextServer int // index of the server that pump looks at first, so that each has its turn
	beats      heartbeats
	wheel      *wheel // counters that report later
	broken     *wheel // counters whose keys Redis cannot use, until they are tried again
	flushes    []flush
	activeAt   int64 // when checks last queued counters

	notices notices

	pipes   map[uint64]*pipe
	overdue map[uint64]*load // pipelines that have timed out, and whose calls have not returned
	lastID  uint64

	state         State
	outageAt      int64  // since when the mode is not Synced because of an outage; 0: there was none
	lastReason    string // why the latest exchange failed
	lastErr       error  // the error behind it
	reasonChanged bool   // an exchange has failed since the state was last reported
	noticesDown   string // why notices of other nodes do not arrive; empty: they do, or there are none
	mismatch      string // describes processes with another layout; empty: there are none
	reseedAt      int64  // when to send again what Redis has lost; 0: nothing is lost

	out []Effect
}

func (c *Machine) emit(e Effect) { c.out = append(c.out, e) }

func (c *Machine) newID() uint64 {
	c.lastID++
	return c.lastID
}

// Written returns the shards in which Redis keeps a record of this node under its present name. Records
// under an earlier name belong to another process.
func (c *Machine) Written() (shards []int) {
	for i := range c.shards {
		if c.shards[i].seq > 0 && c.shards[i].node == c.node {
			shards = append(shards, i)
		}
	}
	return shards
}

// jitter returns d times a random factor from lo to hi.
func (c *Machine) jitter(d int64, lo, hi float64) int64 {
	return int64(float64(d) * (lo + (hi-lo)*c.rng.Float64()))
}

// happened reports an incident.
func (c *Machine) happened(e Incident) {
	e.Time = c.local
	c.emit(Happened{e})
}

// Parts is what a machine works with.
type Parts struct {
	Config Config
	Rand   *rand.Rand
	IDs    Identities
	Link   *counter.Link
	Keys   redisstore.Keyspace
	Each   func(func(*counter.Counter) bool) // visits every live counter
	Stats  *Stats
}

// New returns a machine that has handled no event yet.
func New(p Parts) *Machine {
	cfg, link := p.Config, p.Link
	c := &Machine{
		cfg: cfg, rng: p.Rand, ids: p.IDs, node: p.IDs.Name(), link: link, keys: p.Keys, each: p.Each, stats: p.Stats,
		wheel:  newWheel(cfg.SyncInterval, cfg.MaxLag, p.Rand.Int64N(cfg.SyncInterval)),
		broken: newWheel(cfg.SyncInterval, quarantine, 0), activeAt: math.MinInt64 / 2,
		members: members{count: 1}, shards: make([]shard, p.Keys.Shards()), pipes: map[uint64]*pipe{}, overdue: map[uint64]*load{},
		state:   State{Mode: Resyncing, Reason: "starting", Nodes: 1},
		notices: notices{announced: map[report.NoticeID]report.Notice{}, byID: map[uint64]*counter.Counter{}},
	}
	common := newLoad(&cfg)
	for i := range c.shards {
		v := &server{shards: []int{i}, load: common}
		c.shards[i].server, c.shards[i].node, c.servers = v, c.node, append(c.servers, v)
	}
	if cfg.ExpectedNodes > 1 {
		c.expectNodes(int64(cfg.ExpectedNodes))
	}
	link.SetFallback(cfg.Fallback.Multiplier(c.members.count))
	c.joining.adjusted = c.joining.assumed(c.members.count)
	link.SetNodes(c.joining.adjusted)
	return c
}

// Step handles one event. now is the time on the timer clock, localNow on the counter
// clock. The effects are valid until the next step.
func (c *Machine) Step(now, localNow int64, ev Event) []Effect {
	c.now, c.local = max(now, c.now), max(localNow, c.local)
	c.link.SetLag(c.now - c.local)
	clear(c.out)
	c.out = c.out[:0]
	if c.state.Since == 0 {
		c.state.Since = c.local
	}
	c.drain()
	switch ev := ev.(type) {
	case Tick:
	case Replies:
		c.onReplies(ev)
	case TimedOut:
		c.onTimeout(ev.ID)
	case Freed:
		if v := c.overdue[ev.ID]; v != nil {
			v.slots++
			delete(c.overdue, ev.ID)
		}
	case BeatAnswer:
		c.onBeat(ev)
	case Published:
		c.onPublished(ev.ID, ev.Err)
	case Received:
		c.onReceived(ev)
	case Room:
		c.announce(ev.Notice)
	case Asked:
		c.shards[ev.Shard].asked = true
	case Learned:
		c.afterSettle(ev.Counter, ev.Outcome, ev.Sent)
	case Flush:
		c.onFlush(ev)
	case Withdraw:
		c.flushes = slices.DeleteFunc(c.flushes, func(f flush) bool { return f.id == ev.ID })
	}
	c.timers()
	c.assess() // twice: an outage that ends without a backlog is also reported as Resyncing
	c.checkReturned()
	c.assess()
	c.applyWithoutShard()
	c.pump()
	c.publish()
	c.checkFlushes()
	return c.out
}

// timers does what is due by now, except sending batches.
func (c *Machine) timers() {
	c.wheel.due(c.now, c.look)
	if c.beats.current == nil && c.now >= c.beats.next {
		c.sendBeat()
	}
	c.broken.due(c.now, func(k *counter.Counter) {
		if k.Requeue() {
			c.enqueue(k)
		}
	})
	if c.reseedAt != 0 && c.now >= c.reseedAt {
		c.reseedNow()
	}
}

// WakeAt returns when the next step is due if no event comes before, and whether the caller
// may sleep until then without looking for queued counters (see [counter.Link.Sleep]).
func (c *Machine) WakeAt() (at int64, sleep bool) {
	at = c.now + c.cfg.HeartbeatInterval
	sooner := func(t int64) {
		if t != 0 {
			at = min(at, t)
		}
	}
	if c.beats.current == nil {
		sooner(c.beats.next)
	}
	if h := &c.notices; h.asked && len(h.announced) > 0 && h.publishing == 0 {
		sooner(max(h.mayPublishAt(), 1))
	}
	sooner(c.broken.next())
	sooner(c.reseedAt)
	sooner(c.wheel.next())
	sleep = c.now-c.activeAt >= c.cfg.SyncInterval
	for i := range c.shards {
		s := &c.shards[i]
		sleep = sleep && !s.waits()
		if s.pipe == 0 && s.server.load.free(s.missed) {
			sooner(s.due())
		}
	}
	if !sleep {
		sooner(c.wheel.after(c.now))
	}
	return at, sleep
}

// Identities makes values that distinguish this process from every other, including a copy of it. A
// virtual machine that is cloned, or restored from a snapshot, has the memory of the original, and with
// it the state of every random generator. So identities come from outside of the process.
type Identities struct {
	Name  func() string // of a node
	Nonce func() uint64 // of a flight
}

// Node returns the name of the node.
func (c *Machine) Node() string { return c.node }

// State returns the latest state.
func (c *Machine) State() State { return c.state }

// Patience returns how long a call to the farthest server may take, in ns.
func (c *Machine) Patience() (d int64) {
	for _, v := range c.servers {
		d = max(d, c.deadline(v, 0))
	}
	return d
}

// Resume gives a new machine the name of another process, and in each shard the number of that process'
// latest batch, as if it were a copy of that process. Tests use it.
func (c *Machine) Resume(node string, seqs map[int]int64) {
	c.node = node
	for i := range c.shards {
		c.shards[i].begin(node)
		c.shards[i].seq, c.shards[i].acked = seqs[i], seqs[i]
	}
}

// Config is what a user chooses. Its fields are those of package hybrid's options. All times are in ns.
type Config struct {
	SyncInterval, MaxLag, CommandTimeout      int64
	HeartbeatInterval, MinBackoff, MaxBackoff int64
	DegradeAfter, ExpectedNodes               int
	MaxBatch                                  int // 0: depends on how far away the server is
	Fallback                                  Fallback
	Notices                                   bool   // nodes notify each other of keys that are used up
	Channel                                   string // id of the channel of notices if it is known from the start: all servers carry it; else ""
	Single                                    bool   // all pipelines go to one server, so that they may carry notices
	ShardsPerPipeline                         int    // at the most; 0: the default. It is no option: the simulator draws it
}

// The defaults of MaxBatch, for a server that is nearby, and of ShardsPerPipeline.
const (
	defaultBatch = 200
	defaultWidth = 16
)

// What is no option. All times are in ns.
const (
	linger         = int64(time.Millisecond)      // how long an urgent report waits for others
	retryPause     = 30 * int64(time.Millisecond) // before a failed flight is sent again, on average
	quarantine     = 5 * int64(time.Second)       // before a broken key is tried again
	maxPipes       = 4                            // pipelines under way to a server
	resyncWidth    = 4                            // shards in a pipeline after an outage
	resyncPauseMin = 5 * int64(time.Millisecond)  // pause between pipelines after an outage: a random time from this
	resyncRange    = 20 * int64(time.Millisecond) // to this much more
)
