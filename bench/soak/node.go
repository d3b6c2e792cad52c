package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/bench/internal/rig"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/remote/redistest"
)

// What the limiters are set to, and what bounds depend on. All but maxBackoff,
// which would keep a node away for longer than most faults last, are the
// defaults.
const (
	interval       = 100 * time.Millisecond // SyncInterval
	commandTimeout = 250 * time.Millisecond
	heartbeat      = time.Second
	maxBackoff     = time.Second
	degradeAfter   = 2
	// callGrace is how much longer than its timeout a call may take, and how
	// long it may be until it is repeated.
	callGrace = 70 * time.Millisecond
)

// misdated is how long a check may have taken to be written down as of one
// moment. A machine that is busy elsewhere interrupts now and then.
const misdated = 2 * slot

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
	counted int64   // units admitted by this process
	skipped []int64 // per item: admitted, but it is not certain when
	recent  trail
	weather weather

	// Protected by run.mu.
	calls  []rig.Exchange
	failed time.Duration // when one last did

	stuck int // of the goroutine that samples: how often units seemed to be
}

// lap is what a process was asked in a slot.
type lap struct {
	slot, process  int
	mode           hybrid.Mode
	nodes          int
	losses         uint64
	offered, units []int32 // per item
}

// stall is by how much a timer was late.
type stall struct {
	at   int // slot
	late time.Duration
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
	rdb := rig.NewClient(n.proxy.Addr())
	rdb.AddHook(rig.Hook(n.note))
	lim, err := hybrid.New(rdb, hybrid.Options{
		SyncInterval: interval, CommandTimeout: commandTimeout, HeartbeatInterval: heartbeat, MaxBackoff: maxBackoff,
		DegradeAfter: degradeAfter, KeyPrefix: n.run.prefix, MaxKeys: maxKeys,
	})
	if err != nil {
		rdb.Close()
		return fmt.Errorf("node %d: %w", n.place, err)
	}
	n.lim, n.rdb, n.counted, n.born = lim, rdb, 0, rig.Now()
	n.process++
	n.recent = trail{at: n.run.slotOf(n.born)}
	n.lap = n.newLap(n.run.slotOf(n.born))
	n.run.happened(event{slot: n.lap.slot, kind: born, on: columnOf(n.place, n.process)})
	return nil
}

// columnOf is where the oracle keeps a process.
func columnOf(place, process int) int { return 2*place + process%2 }

// slowFrom is the length from which an exchange is remembered.
const slowFrom = 2 * time.Millisecond

func (n *node) note(x rig.Exchange) {
	if !x.Failed() && x.To-x.From < slowFrom {
		return
	}
	n.run.mu.Lock()
	defer n.run.mu.Unlock()
	n.calls = append(n.calls, x)
	if x.Failed() {
		n.failed = x.To
	}
}

// newLap begins a lap. What the limiter says of itself is written down now: at
// the end, which a busy machine may put off, it might belong to a later slot.
func (n *node) newLap(s int) lap {
	st, items := n.lim.State(), len(n.run.traffic.items)
	return lap{
		slot: s, process: n.process, mode: st.Mode, nodes: st.Nodes, losses: n.lim.Stats().Losses,
		offered: make([]int32, items), units: make([]int32, items),
	}
}

// turnLap ends the current lap if its slot is over.
func (n *node) turnLap(s int) {
	if s <= n.lap.slot {
		return
	}
	n.laps = append(n.laps, n.lap)
	n.lap = n.newLap(s)
}

// load offers checks until ctx ends, in bursts of a millisecond.
func (n *node) load(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	last, due := rig.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			n.mu.Lock()
			n.turnLap(n.lap.slot + 1)
			n.mu.Unlock()
			return
		case <-tick.C:
		}
		t := rig.Now()
		n.mu.Lock()
		if late := t - last - time.Millisecond; late >= slowFrom {
			n.stalls = append(n.stalls, stall{n.run.slotOf(t), late})
		}
		n.turnLap(n.run.slotOf(t))
		if t >= n.weather.until {
			n.weather = n.weather.next(n.rng, t, n.run.calm.Load())
		}
		rate := n.run.traffic.rate() * n.weather.factor
		// What a busy machine has missed by more than 50 ms is not offered.
		for due = min(due+rate*(t-last).Seconds(), rate*0.05); due >= 1; due-- {
			n.check()
		}
		n.mu.Unlock()
		last = t
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
	ok := n.lim.AllowN(it.key, it.rule, units)
	to := rig.Now()
	n.turnLap(n.run.slotOf(to))
	n.lap.offered[i] += int32(units)
	if !ok {
		return
	}
	n.admit(units)
	if to-from > misdated {
		n.skipped[i] += units
		return
	}
	n.lap.units[i] += int32(units)
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
	ended = n.lim.Close(ctx)
	n.rdb.Close()
	a = n.account()
	n.laps = append(n.laps, n.lap)
	e := event{kind: died, on: columnOf(n.place, n.process)}
	if orderly && ended == nil {
		e.kind = left
	}
	n.run.happened(e)
	return a, ended, n.start()
}

// account returns what the process has done. n.mu is held: nothing is admitted
// meanwhile.
func (n *node) account() account {
	return account{id: n.lim.ID(), place: n.place, counted: n.counted, stats: n.lim.Stats(), mode: n.lim.State().Mode}
}

// processes returns how many there have been.
func (n *node) processes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// flush has the node tell Redis the rest. One that finds Redis away, because
// this machine is busy, says so at once and is asked again.
func (n *node) flush(ctx context.Context) error {
	for {
		err := n.lim.Flush(ctx)
		if _, away := errors.AsType[*hybrid.UnavailableError](err); !away || !pause(ctx, time.Second) {
			return err
		}
	}
}
