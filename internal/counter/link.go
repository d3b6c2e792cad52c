package counter

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Multipliers that are not plain factors, see [Link.SetMode].
const (
	// MultiplierOpen admits every check for no more than the limit.
	MultiplierOpen = algorithm.MultiplierOpen
	// MultiplierClosed refuses every check for 1 unit or more.
	MultiplierClosed = algorithm.MultiplierClosed
)

// ClosedRetry is the RetryAfter of a check refused by MultiplierClosed. It is not known when Redis
// will be reachable again, so callers have to ask again.
const ClosedRetry = time.Second

// Link connects counters to the reconciler (package reconcile), which exchanges their state with
// Redis. Counters read from it the multiplier of a unit and how far Redis' clock is ahead. They put
// themselves into its queues when they have something to report. A check waits for the reconciler
// only while the reconciler holds the lock of the same counter. The zero Link is not usable, see
// [NewLink].
type Link struct {
	parts    []Part // one per shard of Redis, and that of no shard, see Part
	shardOf  func(key string) int
	fallback atomic.Int64 // mode of quarantined counters
	lag      atomic.Int64 // see SetLag, ns
	wall     atomic.Int64 // see SetWall, ns
	nodes    atomic.Int64 // number of live nodes, at least 1
	pace     Pace
	maxDebt  time.Duration // see SetMaxDebt

	// Admitted units that will never be reported: they had outlived their window before they could
	// be; they were refunded, or their key was reset; Redis would not book them after an outage; their
	// key had to leave memory before.
	Expired, Withdrawn, Forgiven, Unreported atomic.Int64

	// Units that a caller has handed back, and that count all the same.
	Unreturned atomic.Int64

	closed  atomic.Bool
	wake    chan struct{}
	notices noticeSet

	mu             sync.Mutex // protects what follows; held for moments, under the lock of a counter
	normal, urgent []*Counter // waiting for Drain
	idle           bool       // the reconciler sleeps
}

// Pace says how often the counters of a [Link] report.
type Pace struct {
	// Interval is the time between two collections of reports.
	Interval time.Duration
	// MaxLag is how old a view in use may become before it is fetched again, and how long a unit
	// may wait for its report, if nothing is urgent; see lag.
	MaxLag time.Duration
}

// lag returns how old, in ns, a view of rule may become if nothing is urgent. It is at most a
// quarter of the time for which units count, so that a report of a window arrives before the window
// ends.
func (p *Pace) lag(rule *arith.Rule) int64 {
	return int64(min(p.MaxLag, max(p.Interval, rule.Horizon()/4)))
}

// Part is the state of one shard of Redis. Shards may be on different servers, each with its own
// clock, and may fail one by one.
type Part struct {
	link        *Link
	shard       int
	mode        atomic.Int64 // packed by packMode
	offset      atomic.Int64 // Redis' clock minus ours, ns
	slack       atomic.Int64 // uncertainty of offset, ns; negative: offset is a guess, or unknown
	epochOffset atomic.Int64 // what latest returned when the epoch was last changed for it
	epoch       *epoch
	firstLag    atomic.Int64 // lag of the link when offset was first measured, ns
	back        atomic.Int64 // Redis' clock minus where it once was, ns: negative if it was set back; see Step
	backAt      atomic.Int64 // our time when Redis' clock was last found set back, ns
	backTo      atomic.Int64 // what Redis' clock showed then
	aheadAt     atomic.Int64 // our time when Redis' clock was last found set ahead of all that we know, ns
	aheadBy     atomic.Int64 // by how much in all, ns
	hearing     atomic.Int64 // see SetHearing, ns of our clock
}

// unknown is the slack of a part that has no guess of Redis' clock either.
const unknown = -2

// clock returns how far Redis' clock is ahead of ours, in ns, and whether that was measured.
func (p *Part) clock() (off int64, sure bool) { return p.offset.Load(), p.slack.Load() >= 0 }

// latest returns the most, in ns, by which Redis' clock may be ahead of ours, and whether that was
// measured. Windows use it, see [algorithm.Window.Follow]. It is 1 µs less than offset plus slack,
// because 1 µs of the slack is the resolution of Redis' clock: with it, a report that takes no time
// would arrive ahead of that clock.
func (p *Part) latest() (off int64, sure bool) {
	off, sure = p.clock()
	return off + max(p.slack.Load()-int64(time.Microsecond), 0), sure
}

// reading returns what is known of Redis' clock: the most by which it may be ahead of ours, which is a guess until
// the shard has answered.
func (p *Part) reading() (k algorithm.Clock) {
	if k.Off, k.Sure = p.latest(); !k.Sure {
		k.Off = p.link.guess()
	}
	k.Slack = p.slack.Load()
	return k
}

// SetMode sets the multiplier of a unit from now on (1; N; [MultiplierOpen]; [MultiplierClosed])
// and whether answers are marked as degraded.
func (p *Part) SetMode(multiplier int64, degraded bool) {
	if m := packMode(multiplier, degraded); p.mode.Swap(m) != m {
		p.epoch.n.Add(1)
	}
}

// SetOffset sets how many nanoseconds Redis' clock is ahead of ours, give or take slack. A negative
// slack means that it is only a guess.
func (p *Part) SetOffset(ns, slack int64) {
	sure := p.slack.Load() >= 0
	if !sure && slack >= 0 {
		p.firstLag.Store(p.link.lag.Load())
	}
	p.offset.Store(ns)
	p.slack.Store(slack)
	// A lease of a window uses the offset at the time of the grant. As long as the epoch does
	// not change, that is within algorithm.ClockStep of the present offset.
	latest, _ := p.latest()
	if moved := latest - p.epochOffset.Load(); sure != (slack >= 0) || moved > algorithm.ClockStep/2 || moved < -algorithm.ClockStep/2 {
		p.epochOffset.Store(latest)
		p.epoch.n.Add(1) // must be last: a counter that reads the new epoch must see the new offset
	}
}

// Step records that an exchange has found Redis' clock set ahead by at most ns, or back by at most
// -ns. The exchange began at our time at. Since it was set, Redis' clock has shown server or later.
//
// Redis' clock may have been put right, or follows our clock, which was set ahead before. What goes
// beyond that is no time that has passed.
func (p *Part) Step(ns, at, server int64) {
	if ns == 0 {
		return
	}
	is, most := p.back.Load()+ns, max(p.firstLag.Load()-p.link.lag.Load(), 0)
	p.back.Store(min(is, most))
	switch {
	case ns < 0:
		p.backTo.Store(server)
		p.backAt.Store(at)
	case is > most:
		p.aheadBy.Add(is - most)
		p.aheadAt.Store(at)
	}
}

// NewLink returns a link to a Redis with this number of shards, with multiplier 1 and one node.
// shardOf returns the shard of a key.
func NewLink(pace Pace, shards int, shardOf func(key string) int) *Link {
	l := &Link{pace: pace, parts: make([]Part, shards+1), shardOf: shardOf, wake: make(chan struct{}, 1)}
	l.nodes.Store(1)
	for i := range l.parts {
		l.parts[i].link, l.parts[i].shard, l.parts[i].epoch = l, i, new(epoch)
		l.parts[i].slack.Store(unknown)
		l.parts[i].hearing.Store(NeverHears)
	}
	l.Part(-1).shard = -1
	l.SetMode(1, false)
	l.SetFallback(1)
	return l
}

// packMode packs a mode into 32 bits. The multiplier is capped at maxMultiplier.
func packMode(multiplier int64, degraded bool) int64 {
	m := min(multiplier, maxMultiplier) << 1
	if degraded {
		m |= 1
	}
	return m
}

// maxMultiplier is larger than any number of nodes.
const maxMultiplier = 1 << 29

func modeMultiplier(m int64) int64 { return m >> 1 }
func modeDegraded(m int64) bool    { return m&1 != 0 }

// Part returns the part for one shard. Shard -1 stands for no shard: its clock is the guess for
// shards that have not answered.
func (l *Link) Part(shard int) *Part {
	if last := len(l.parts) - 1; shard < 0 || shard > last {
		shard = last
	}
	return &l.parts[shard]
}

// SetMode is [Part.SetMode] for all shards.
func (l *Link) SetMode(multiplier int64, degraded bool) {
	for i := range l.parts {
		l.parts[i].SetMode(multiplier, degraded)
	}
}

// SetFallback sets the multiplier of units in quarantined counters.
func (l *Link) SetFallback(multiplier int64) { l.fallback.Store(packMode(multiplier, true)) }

// SetMaxDebt bounds the debt of a leaky bucket after an outage. Units that were admitted in the
// outage fill the bucket to at most what takes d longer to leak than its capacity. 0 stands for the
// time in which the capacity leaks; negative: no debt. Call it before the first check.
func (l *Link) SetMaxDebt(d time.Duration) { l.maxDebt = d }

// partOf returns the part for the shard of a key.
func (l *Link) partOf(key string) *Part { return l.Part(l.shardOf(key)) }

// Degraded reports whether the shard of a key is in an outage.
func (l *Link) Degraded(key string) bool { return modeDegraded(l.partOf(key).mode.Load()) }

// SetLag sets by how many ns the clock of the checks is behind a clock that never stops. Only
// changes of it matter: an increase means that the clock of the checks stood still.
func (l *Link) SetLag(ns int64) { l.lag.Store(ns) }

// SetNodes sets the number of live nodes; less than 1 means 1.
func (l *Link) SetNodes(n int64) { l.nodes.Store(max(n, 1)) }

// Nodes returns the number of live nodes by which reports are urgent.
func (l *Link) Nodes() int64 { return l.nodes.Load() }

// Close closes the queues: counters do not enter them any more.
func (l *Link) Close() {
	l.closed.Store(true)
	l.Drain(func(*Counter, bool) {})
}

// Wake receives a signal when an urgent counter is waiting, or any counter while the reconciler
// sleeps (see [Link.Sleep]).
func (l *Link) Wake() <-chan struct{} { return l.wake }

// Sleep announces that the reconciler will wait for Wake, and reports whether it may: false if a
// counter has arrived meanwhile.
func (l *Link) Sleep() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = len(l.normal)+len(l.urgent) == 0
	return l.idle
}

// Drain calls f for every waiting counter, the urgent ones first, in the order of arrival. An urgent
// one whose report was moved forward meanwhile comes once more.
func (l *Link) Drain(f func(c *Counter, urgent bool)) {
	l.mu.Lock()
	urgent, normal := l.urgent, l.normal
	l.urgent, l.normal, l.idle = nil, nil, false
	l.mu.Unlock()
	for _, c := range urgent {
		f(c, true)
	}
	for _, c := range normal {
		f(c, false)
	}
}

// push adds c to those that wait, and reports whether to wake the reconciler.
func (l *Link) push(c *Counter, urgent bool) (wake bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if urgent {
		l.urgent = append(l.urgent, c)
		return len(l.urgent) == 1
	}
	l.normal = append(l.normal, c)
	wake, l.idle = l.idle, false
	return wake
}

func (l *Link) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // a signal is waiting already
	}
}
