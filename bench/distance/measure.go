package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What is asked.
const (
	nodes   = 2
	units   = 20
	perNode = 10 // checks of each key a second on each node
	length  = 10 * time.Second
	tick    = 2 * time.Millisecond // of the load
)

// options is what the command line says.
type options struct {
	trips    []time.Duration
	length   time.Duration
	keys     int
	parallel int
}

// row is what has come of a distance.
type row struct {
	trip     time.Duration
	synced   time.Duration // from the start of a node until its mode was Synced, the longest
	mean     float64       // the fullest true window, mean over the keys, in units
	most     int           // and of the fullest key
	admitted float64       // ÷ what the limit admits in that time
	oldest   time.Duration // how long a unit was pending at most
	perCall  float64       // keys in a script call
	took     time.Duration // what 99 of 100 checks took at most
	failures uint64        // exchanges
}

// run measures all distances, some at a time, and prints them in order.
func (o *options) run(out io.Writer) error {
	rows := make([]row, len(o.trips))
	var g errgroup.Group
	g.SetLimit(o.parallel)
	for i, trip := range o.trips {
		g.Go(func() (err error) {
			rows[i], err = o.measure(trip)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintln(out, "| round trip | until synced | fullest window of 20, mean (worst key) | admitted ÷ limit | oldest pending unit | keys per call | p99 of a check |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		fmt.Fprintf(out, "| %v | %v | %.1f (%d) | %.2f | %v | %.0f | %v |\n", r.trip, r.synced.Round(time.Millisecond), r.mean, r.most, r.admitted,
			r.oldest.Round(time.Millisecond), r.perCall, r.took.Round(100*time.Nanosecond))
		if r.failures > 0 {
			fmt.Fprintf(out, "\n%d exchanges have failed %v away.\n", r.failures, r.trip)
		}
	}
	return nil
}

// measure measures one distance.
func (o *options) measure(trip time.Duration) (r row, err error) {
	r.trip = trip
	server, err := redistest.Launch(redistest.Options{})
	if err != nil {
		return r, err
	}
	defer server.Close()
	wire, err := redistest.NewFar(server.Addr(), trip)
	if err != nil {
		return r, err
	}
	defer wire.Close()
	rule := limit.Must(limit.SlidingWindow("distance", units, length))
	began := rig.Now()
	f, err := fleet.Hybrid(wire.Addr(), nodes, rule, hybrid.Options{})
	if err != nil {
		return r, err
	}
	defer f.Close()
	for slices.ContainsFunc(f.Limiters, func(l *hybrid.Limiter) bool { return l.State().Mode != hybrid.Synced }) {
		if r.synced = rig.Now() - began; r.synced > 20*time.Second {
			return r, fmt.Errorf("%v away: not synced after %v: %v", trip, r.synced, f.Limiters[0].State())
		}
		time.Sleep(time.Millisecond)
	}
	if err := f.Await(); err != nil {
		return r, err
	}
	o.play(f, &r)
	return r, nil
}

// play asks for all keys, and sums up.
func (o *options) play(f *fleet.Fleet, r *row) {
	before, log := f.Stats(), make(fleet.Admitted, o.keys)
	names := make([]string, o.keys)
	for i := range names {
		names[i] = "user:" + strconv.Itoa(i)
	}
	var took []time.Duration
	pace, begin, looked := rig.NewPacer(), rig.Now(), time.Duration(0)
	for now := begin; now-begin < o.length; now = rig.Now() {
		for range pace.Due(now, float64(nodes*perNode*o.keys)) {
			key, node := rand.IntN(o.keys), rand.IntN(nodes)
			asked := rig.Now()
			if f.Ask[node](names[key]) {
				log[key] = append(log[key], asked)
			}
			took = append(took, rig.Now()-asked)
		}
		if now-looked >= 10*tick {
			looked = now
			for _, l := range f.Limiters {
				r.oldest = max(r.oldest, l.Stats().OldestPending)
			}
		}
		time.Sleep(tick)
	}
	after := fleet.Add(f.Stats(), before, -1)
	slices.Sort(took)
	r.took = rig.Percentile(took, 990)
	r.mean, r.most = log.FullestWindows(length)
	r.admitted = float64(log.Units()) / (float64(o.keys*units) * float64(o.length) / float64(length))
	r.perCall = float64(after.KeysSynced) / float64(max(after.Batches, 1))
	r.failures = after.Failures
}
