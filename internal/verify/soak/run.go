package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// kind is what a lap or a fault is about.
type kind uint8

const (
	ran      kind = iota // a process did, for a slot
	born                 // one began
	died                 // one ended, and not in order
	left                 // one ended in order
	lost                 // a key, or wholeLoss, was lost
	pardoned             // a place's ledger was deleted
	crowded              // the set of nodes was deleted
)

// rebooking is that so many units of each place may be booked once more.
type rebooking struct {
	slot  int
	units []int64
}

// run is one soak.
type run struct {
	config
	out     io.Writer
	prefix  string
	start   time.Duration
	traffic *traffic
	world   *world
	nodes   []*node
	books   *books
	judge   *gatherer
	gauges  *gauges

	// Of the goroutine that samples, and of the end.
	census  census
	worst   finding
	told    int64  // units admitted, at the last line
	allowed uint64 // changes of state
	final   tally

	calm atomic.Bool  // no new faults, steady load
	age  atomic.Int64 // the longest R of late, in slots

	mu         sync.Mutex // protects what follows
	faults     []*fault
	rebookings []rebooking
	counts     map[string]int // faults by name
	explained  uint64         // changes of state
	noise      int            // exchanges that took too long for no reason that we gave
	breaches   int
	first      string
	broken     chan struct{} // closed with the first breach
}

func newRun(c config, out io.Writer) (*run, error) {
	r := &run{
		config: c, out: &voice{out: out}, prefix: fmt.Sprintf("hlsoak-%x", c.seed), start: rig.Now(), traffic: newTraffic(c.nodes), gauges: newGauges(),
		counts: map[string]int{}, broken: make(chan struct{}),
	}
	r.books = newBooks(r.breach)
	r.judge = newGatherer(r)
	var err error
	if r.world, err = newWorld(r.prefix); err != nil {
		return nil, err
	}
	for place := range c.nodes {
		n := &node{place: place, run: r, rng: rand.New(rand.NewPCG(c.seed, 100+uint64(place))), flying: map[time.Duration]int{}, weather: weather{factor: 1}}
		if n.proxy, err = redistest.NewProxy(r.world.server.Addr()); err != nil {
			r.close()
			return nil, err
		}
		r.nodes = append(r.nodes, n)
		n.mu.Lock()
		err = n.start()
		n.mu.Unlock()
		if err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// voice is a writer that several may use, a line at a time.
type voice struct {
	mu  sync.Mutex
	out io.Writer
}

// Write writes a line.
func (v *voice) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.out.Write(p)
}

// slotOf returns the slot of a time, from 1 on.
func (r *run) slotOf(t time.Duration) int { return int((t-r.start)/slot) + 1 }

// maxBreaches bounds how many are printed.
const maxBreaches = 20

// breach says what is wrong. The faults end with the first; what else is wrong
// by then is said too.
func (r *run) breach(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if r.breaches++; r.breaches == 1 {
		r.first = text
		close(r.broken)
	}
	if r.breaches <= maxBreaches {
		fmt.Fprintf(r.out, "%8s  BROKEN: %s\n", (rig.Now() - r.start).Round(time.Second), text)
	}
}

// untroubled tells whether no fault but one concerned a node since a time, and
// no exchange failed: this machine may be busy.
func (r *run) untroubled(place int, since time.Duration, but *fault) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes[place].failed >= since {
		return false
	}
	for _, f := range r.faults {
		if f != but && f.concerns(place) && (f.cause || f.key != noKey) && f.to >= since {
			return false
		}
	}
	return true
}

// underway returns when the oldest exchange began that has not ended yet.
func (r *run) underway() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := rig.Now()
	for _, n := range r.nodes {
		for from := range n.flying {
			oldest = min(oldest, from)
		}
	}
	return oldest
}

// accounts returns what the living processes say.
func (r *run) accounts() (out []account) {
	for _, n := range r.nodes {
		n.mu.Lock()
		out = append(out, n.account())
		n.mu.Unlock()
	}
	return out
}

// close leaves nothing behind. Nodes that still live end without a word.
func (r *run) close() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range r.nodes {
		n.mu.Lock()
		if n.lim != nil {
			_ = n.lim.Shutdown(gone) // what it could not tell was judged before
			n.rdb.Close()
		}
		n.mu.Unlock()
		n.proxy.Close()
	}
	r.world.close()
}

// play is the run up to the end of the faults, or to the first breach.
func (r *run) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.length)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-r.broken:
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	r.calm.Store(true)
	g.Go(func() error { return r.seasons(ctx) })
	g.Go(func() error {
		d := dice{rand.New(rand.NewPCG(r.seed, 2))}
		return r.befall(ctx, d, 500*ms, 5*time.Second, func(d dice) error { return r.serverFault(ctx, d) })
	})
	for _, n := range r.nodes {
		d := dice{rand.New(rand.NewPCG(r.seed, 10+uint64(n.place)))}
		g.Go(func() error {
			return r.befall(ctx, d, 500*ms, 6*time.Second, func(d dice) error { return r.nodeFault(ctx, n, d) })
		})
	}
	g.Go(func() error { return r.watch(ctx) })
	return g.Wait()
}

// watch samples and prints until ctx ends.
func (r *run) watch(ctx context.Context) error {
	sample, line := time.NewTicker(r.sampleEvery()), time.NewTicker(r.every)
	defer sample.Stop()
	defer line.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sample.C:
			r.sample()
		case <-line.C:
			r.sample()
			r.tell()
		}
	}
}

// sampleEvery is short enough for a trend to show in a short run.
func (r *run) sampleEvery() time.Duration {
	return min(max(r.length/60, 2*time.Second), 10*time.Second)
}

// soak runs it all, and returns whether every promise was kept.
func soak(ctx context.Context, c config, out io.Writer) (ok bool, err error) {
	before := runtime.NumGoroutine()
	r, err := newRun(c, out)
	if err != nil {
		return false, err
	}
	defer r.close()
	r.header()
	if c.started != nil {
		c.started(r)
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var load sync.WaitGroup
	for _, n := range r.nodes {
		load.Go(func() { n.load(loading) })
	}
	judging, flushed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(judging)
		r.judge.follow(loading)
		<-flushed
		r.judge.finish()
	}()
	if err = r.play(ctx); err == nil {
		err = r.heal(ctx)
	}
	stop()
	load.Wait()
	if err == nil {
		err = r.flush(ctx)
	}
	close(flushed)
	<-judging
	if err != nil {
		return false, err
	}
	r.settle()
	r.close()
	r.judgeLeaks(before)
	r.summary()
	return r.breaches == 0, nil
}

// heal is the first part of the end: no more faults, the load goes on. Each node must
// be synced before long, unless exchanges fail because this machine is busy.
func (r *run) heal(ctx context.Context) error {
	r.calm.Store(true)
	begun := rig.Now()
	fmt.Fprintf(r.out, "%8s  no more faults\n", (begun - r.start).Round(time.Second))
	synced := make([]bool, len(r.nodes))
	for left := len(r.nodes); (left > 0 || rig.Now()-begun < calmLength) && rig.Pause(ctx, 20*ms); {
		for i, n := range r.nodes {
			n.mu.Lock()
			now := n.lim.State().Mode == hybrid.Synced
			n.mu.Unlock()
			if !now || synced[i] {
				continue
			}
			synced[i] = true
			if left--; left == 0 {
				fmt.Fprintf(r.out, "%8s  all nodes are synced after %v\n", (rig.Now() - r.start).Round(time.Second), (rig.Now() - begun).Round(10*ms))
			}
		}
		since := rig.Now() - calmLength
		late := slices.IndexFunc(r.nodes, func(n *node) bool { return !synced[n.place] && r.untroubled(n.place, since, nil) })
		if since > begun && (late >= 0 || since > begun+healLimit) {
			r.breach("not all nodes are synced %v after the last fault", (rig.Now() - begun).Round(time.Second))
			break
		}
	}
	return ctx.Err()
}

// healLimit is for how long a machine may be too busy for exchanges.
const healLimit = 5 * time.Minute

// calmLength is how long the load goes on without faults: the back-off cap and
// a few seconds, and time for the shorter windows to hold nothing older.
const calmLength = maxBackoff + 7*time.Second
