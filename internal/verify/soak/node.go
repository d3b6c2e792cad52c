package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What the limiters are set to, and what bounds depend on. With the default of maxBackoff a
// node would stay away for longer than most faults last.
const (
	interval       = rig.Interval
	lag            = rig.Lag
	commandTimeout = rig.CommandTimeout
	heartbeat      = rig.Heartbeat
	maxBackoff     = time.Second
	degradeAfter   = 2
	// grace is how much longer than its timeout a limiter waits for a call, and how
	// long it may be until that is repeated.
	grace = 100 * time.Millisecond
)

// node is a place in the fleet: one process after the other, each with a
// limiter and a client of its own, and somebody who asks it.
type node struct {
	place int
	proxy *redistest.Proxy
	run   *run
	rng   *rand.Rand // of the load

	mu      sync.Mutex // protects what follows
	lim     *hybrid.Limiter
	rdb     *redis.Client
	process int // counts them
	born    time.Duration
	lap     lap
	laps    []lap // not yet looked at by the judge
	stalls  []stall
	ticked  time.Duration // until when who asks was on time, or is known to have been late
	counted int64         // units admitted by this process
	recent  trail
	weather weather

	// Protected by run.mu.
	calls  []rig.Exchange
	flying map[time.Duration]int // exchanges under way, by when they began
	failed time.Duration         // when one last did

	stuck int // of the goroutine that samples: how often units seemed to be
}

// lap is what a process was asked in a slot, or its beginning or end.
type lap struct {
	slot     int
	kind     kind
	said             // at its beginning; a busy machine may put its end off
	forgiven int64   // units, by its end
	items    []asked // by item
}

// said is what a limiter says of itself.
type said struct {
	mode   hybrid.Mode
	nodes  int
	losses uint64
}

// asked is how often an item was asked for, in units.
type asked struct {
	offered int32
	units   int32 // admitted,
	apart   int32 // by a limiter that was cut off,
	vague   int32 // and at a time that is not certain
}

func (a *asked) admitted() int32 { return a.units + a.apart + a.vague }

// stall is by how much a timer was late.
type stall struct {
	from, to int // slots
	late     time.Duration
}

// trail is the units that were admitted in the slots of late.
type trail struct {
	units [256]int64 // up to and including a slot
	at    int
	sum   int64
}

func (t *trail) add(s int, n int64) {
	for ; t.at < s; t.at++ {
		t.units[(t.at+1)%len(t.units)] = t.sum
	}
	t.sum += n
	t.units[s%len(t.units)] = t.sum
}

// since returns what was admitted after a slot.
func (t *trail) since(s int) int64 {
	switch {
	case s >= t.at:
		return 0
	case t.at-s >= len(t.units) || s <= 0:
		return t.sum
	}
	return t.sum - t.units[s%len(t.units)]
}

// start makes the next process of the place. n.mu is held.
func (n *node) start() error {
	lim, rdb, err := rig.Start(n.proxy.Addr(), rig.Hook{Begun: n.begun, Ended: n.note}, hybrid.Options{
		MaxBackoff: maxBackoff, DegradeAfter: degradeAfter, KeyPrefix: n.run.prefix, MaxKeys: maxKeys, ExpectedNodes: n.run.config.nodes,
	})
	if err != nil {
		return fmt.Errorf("node %d: %w", n.place, err)
	}
	n.lim, n.rdb, n.counted, n.born = lim, rdb, 0, rig.Now()
	n.process++
	n.recent = trail{at: n.run.slotOf(n.born)}
	n.lap = lap{said: said{mode: hybrid.Resyncing, nodes: 1}}
	n.lap = n.newLap(n.run.slotOf(n.born))
	n.laps = append(n.laps, lap{slot: n.lap.slot, kind: born})
	return nil
}

// slowFrom is the length from which an exchange is remembered.
const slowFrom = 2 * time.Millisecond

func (n *node) begun(at time.Duration) {
	n.run.mu.Lock()
	defer n.run.mu.Unlock()
	n.flying[at]++
}

func (n *node) note(x rig.Exchange) {
	n.run.mu.Lock()
	defer n.run.mu.Unlock()
	if n.flying[x.From]--; n.flying[x.From] == 0 {
		delete(n.flying, x.From)
	}
	if !x.Failed() && x.To-x.From < slowFrom {
		return
	}
	n.calls = append(n.calls, x)
	if x.Failed() {
		n.failed = x.To
	}
}

// newLap begins a lap. Whoever reads late, because the machine is busy, might read what
// belongs to a later slot: then the limiter still says what it said last.
func (n *node) newLap(s int) lap {
	l := lap{slot: s, kind: ran, said: n.ask(), items: make([]asked, len(n.run.traffic.items))}
	if n.run.slotOf(rig.Now()) > s {
		l.said = n.lap.said
	}
	return l
}

// ask has the limiter say how it is.
func (n *node) ask() said {
	st := n.lim.State()
	return said{mode: st.Mode, nodes: st.Nodes, losses: inside.Of(n.lim).Figures().Losses}
}

// turnLap ends the current lap if its slot is over.
func (n *node) turnLap(s int) {
	if s <= n.lap.slot {
		return
	}
	n.endLap()
	n.lap = n.newLap(s)
}

// endLap writes the current lap down. How many nodes there are is taken to be the fewest
// that the limiter may have gone by.
func (n *node) endLap() {
	n.lap.forgiven, n.lap.nodes = inside.Of(n.lim).Figures().ForgivenUnits, min(n.lap.nodes, n.lim.State().Nodes)
	n.laps = append(n.laps, n.lap)
}

// load offers checks until ctx ends, in bursts of a millisecond.
func (n *node) load(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	pacer := rig.NewPacer()
	idle := rig.Now() // since when it waits for the timer
	for {
		select {
		case <-ctx.Done():
			n.mu.Lock()
			n.ticked = forever
			n.mu.Unlock()
			return
		case <-tick.C:
		}
		t := rig.Now()
		n.mu.Lock()
		if late := t - idle - time.Millisecond; late >= slowFrom {
			n.stalls = append(n.stalls, stall{n.run.slotOf(idle), n.run.slotOf(t), late})
		}
		n.turnLap(n.run.slotOf(rig.Now()))
		if t >= n.weather.until {
			n.weather = n.weather.next(n.rng, t, n.run.calm.Load())
		}
		rate := n.run.traffic.rate() * n.weather.factor
		for range pacer.Due(t, rate) {
			n.check()
		}
		idle = rig.Now()
		n.ticked = idle
		n.mu.Unlock()
	}
}

// check asks once and writes down what came of it. n.mu is held.
func (n *node) check() {
	i, units := n.run.traffic.pick(n.rng.Float64()), units(n.rng)
	if i == len(n.run.traffic.items) {
		rule := junkRules[n.rng.IntN(len(junkRules))]
		if n.lim.AllowN(fmt.Sprintf("junk:%x", n.rng.Uint64()), rule, units) {
			n.admit(units)
		}
		return
	}
	it := &n.run.traffic.items[i]
	from := rig.Now()
	res := n.lim.Take(it.key, it.rule, units)
	to := rig.Now()
	n.turnLap(n.run.slotOf(to))
	a := &n.lap.items[i]
	a.offered += int32(units)
	if !res.Allowed {
		return
	}
	n.admit(units)
	switch {
	case to-from > misdated:
		a.vague += int32(units)
	case res.Source == limit.SourceDegraded:
		a.apart += int32(units)
	default:
		a.units += int32(units)
	}
}

func (n *node) admit(units int64) {
	n.counted += units
	n.recent.add(n.run.slotOf(rig.Now()), units)
}

// closeTimeout is how long an orderly end may take.
const closeTimeout = 2 * time.Second

// replace ends the process and starts the next: a crash, or an orderly end. It
// returns the account of the old one, and how its end went.
func (n *node) replace(orderly bool) (a account, ended, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turnLap(n.run.slotOf(rig.Now()))
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if !orderly {
		cancel()
	}
	ended = n.lim.Shutdown(ctx)
	n.rdb.Close()
	a = n.account()
	n.endLap()
	end := lap{slot: n.run.slotOf(rig.Now()), kind: died}
	if orderly && ended == nil {
		end.kind = left
	}
	n.laps = append(n.laps, end)
	return a, ended, n.start()
}

// account returns what the process has done. n.mu is held: nothing is admitted
// meanwhile.
func (n *node) account() account {
	return account{id: inside.Of(n.lim).ID(), place: n.place, counted: n.counted, stats: inside.Of(n.lim).Figures(), mode: n.lim.State().Mode}
}

// processes returns how many there have been.
func (n *node) processes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}
