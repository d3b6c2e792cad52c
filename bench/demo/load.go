package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	slot    = 10 * time.Millisecond // how finely admissions are recorded
	sampled = 16                    // one check in so many is timed
)

// Bounds of how many of the hottest keys are watched closely.
const minWatched, maxWatched = 5, 32

// phase is a part of the story.
type phase int

const (
	healthy phase = iota
	outage
	recovered
	phases // their number
)

var phaseNames = [phases]string{"healthy", "outage", "recovered"}

func (p phase) String() string { return phaseNames[p] }

// item is something that can be asked for.
type item struct {
	key  string
	rule *limit.Rule
}

// traffic is what each node is asked: the same for all.
type traffic struct {
	items   []item
	mix     rig.Mix // of the items, in checks per second
	watched []int   // items whose every admission is recorded
	watch   []int   // item → its place in watched, -1 if it is not
}

// newTraffic spreads the load like Zipf's law: the k-th key is asked 1/k as
// often as the hottest. The last item is a quota for the hour that is used up
// early: nothing of it comes back during the run, so that whatever Redis
// forgets would show.
func newTraffic(c config) *traffic {
	tr := &traffic{}
	capacity := float64(c.rule.Limit()) / c.rule.Period().Seconds()
	watched := 0
	for k := range c.keys {
		rate := c.overload * capacity / float64(k+1)
		if k < minWatched || k < maxWatched && rate >= capacity {
			watched++
		}
		tr.add(item{fmt.Sprintf("user:%d", k), c.rule}, rate/float64(c.nodes), k < watched)
	}
	quota := limit.Must(limit.SlidingWindow("quota", quotaUnits+int64(c.nodes), time.Hour))
	tr.add(item{"quota", quota}, quotaUnits/(quotaUsedUp*c.length.Seconds())/float64(c.nodes), true)
	return tr
}

// The quota's units, and the share of the run after which they are used up.
const quotaUnits, quotaUsedUp = 100, 0.15

func (tr *traffic) add(it item, rate float64, watched bool) {
	at := -1
	if watched {
		at = len(tr.watched)
		tr.watched = append(tr.watched, len(tr.items))
	}
	tr.items, tr.watch = append(tr.items, it), append(tr.watch, at)
	tr.mix.Add(rate)
}

// rate returns the checks per second and node.
func (tr *traffic) rate() float64 { return tr.mix.Rate() }

// pick returns the item at x of the total, 0 to 1.
func (tr *traffic) pick(x float64) int {
	return min(tr.mix.Pick(x*tr.rate()), len(tr.items)-1)
}

// node is one process of the fleet: a limiter, a connection, and somebody who
// asks for more than there is.
type node struct {
	id   int
	lim  *hybrid.Limiter
	rdb  *redis.Client
	wire *wire
	rng  *rand.Rand // of the load

	mu      sync.Mutex // protects what follows, against the reporter
	phase   phase
	asked   int64
	part    [phases]part
	records []record // of the watched items
	all     record   // of all items
	recent  []int64  // ns per timed check, since last taken
	timed   []timing
	stalls  []span // late ticks
	history []change
}

// part is what happened in one phase.
type part struct {
	offered, admitted []int64 // per item
	timings           []int64 // ns
	total             int64   // admitted
}

// record counts one item's checks per slot.
type record struct{ offered, admitted []int64 }

func (r *record) count(at int, ok bool) {
	for len(r.offered) <= at {
		r.offered, r.admitted = append(r.offered, 0), append(r.admitted, 0)
	}
	r.offered[at]++
	if ok {
		r.admitted[at]++
	}
}

// change is a change of a limiter's state: when it happened, and when it was
// told. The switch was made in between.
type change struct {
	mode        hybrid.Mode
	since, told time.Duration
}

// changed is called by the limiter.
func (n *node) changed(s hybrid.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.history = append(n.history, change{s.Mode, time.Duration(s.Since.UnixNano()), now()})
}

// enter begins a phase.
func (n *node) enter(p phase) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.phase = p
}

// prepare makes room for what is to be recorded.
func (n *node) prepare(tr *traffic) {
	n.records = make([]record, len(tr.watched))
	for p := range n.part {
		n.part[p].offered = make([]int64, len(tr.items))
		n.part[p].admitted = make([]int64, len(tr.items))
	}
}

// load offers checks until stop is closed, in bursts of a millisecond.
func (n *node) load(tr *traffic, start time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	pacer, last := rig.NewPacer(), now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		t := now()
		n.mu.Lock()
		if t-last >= slowFrom {
			n.stalls = append(n.stalls, span{last, t})
		}
		for range pacer.Due(t, tr.rate()) {
			n.check(tr, start)
		}
		n.mu.Unlock()
		last = t
	}
}

// check asks once and writes down what came of it. n.mu is held. The time is
// read before the check: were this goroutine interrupted in between, one unit
// of the node would be written down too early.
func (n *node) check(tr *traffic, start time.Duration) {
	i := tr.pick(n.rng.Float64())
	it := &tr.items[i]
	p := &n.part[n.phase]
	at := now()
	ok := n.lim.Allow(it.key, it.rule)
	in := int((at - start) / slot)
	if n.asked++; n.asked%sampled == 0 {
		ns := int64(now() - at)
		n.recent, p.timings, n.timed = append(n.recent, ns), append(p.timings, ns), append(n.timed, timing{in, ns})
	}
	n.all.count(in, ok)
	p.offered[i]++
	if ok {
		p.admitted[i]++
		p.total++
	}
	if w := tr.watch[i]; w >= 0 {
		n.records[w].count(in, ok)
	}
}

// percentile returns the p-th percentile, 0 to 1, of values in any order. It
// sorts them.
func percentile(values []int64, p float64) int64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	i := int(math.Ceil(p*float64(len(values)))) - 1
	return values[min(max(i, 0), len(values)-1)]
}
