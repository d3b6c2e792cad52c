package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// sample looks at all that must stay flat or even, without stopping anybody.
func (r *run) sample() {
	r.gauges.heap.add(float64(r.heap()))
	r.gauges.goroutines.add(float64(r.goroutines()))
	before := r.accounts()
	r.judgeStuck(before)
	r.judgeChanges(r.books.sum(before))
	if !r.world.mu.TryLock() {
		return // the server cannot be asked now
	}
	defer r.world.mu.Unlock()
	c, err := r.world.census()
	if err != nil {
		r.breach("Redis could not be asked although nothing was wrong: %v", err)
		return
	}
	r.gauges.keys.add(float64(c.keys))
	r.gauges.memory.add(float64(c.bytes))
	r.census = c
	if len(c.eternal) > 0 {
		r.breach("%d keys without a TTL, among them %s", len(c.eternal), c.eternal[0])
	}
	before = r.accounts()
	l, _, err := r.world.ledgers("")
	if err != nil {
		r.breach("%v", err)
		return
	}
	r.books.audit(before, l, r.accounts(), false)
	r.judge.expect(r.read(false))
}

// judgeStuck checks that what is pending is new, at nodes with which nothing
// has been wrong for a while: they report within R.
func (r *run) judgeStuck(accounts []account) {
	for i, n := range r.nodes {
		now := rig.Now()
		if !r.untroubled(n.place, now-time.Duration(capSlots)*slot-quarantine, nil) || accounts[i].mode != hybrid.Synced {
			n.stuck = 0
			continue
		}
		n.mu.Lock()
		fresh := n.recent.since(r.slotOf(now) - max(inSlots(500*ms), int(r.age.Load())))
		same := inside.Of(n.lim).ID() == accounts[i].id && now-n.born > 2*time.Second
		n.mu.Unlock()
		if !same || accounts[i].stats.PendingUnits <= fresh {
			n.stuck = 0
			continue
		}
		if n.stuck++; n.stuck == 3 {
			r.breach("node %d: %d units are pending, of which only %d can be new", n.place, accounts[i].stats.PendingUnits, fresh)
		}
	}
}

// judgeChanges checks that states change no more often than the faults explain.
func (r *run) judgeChanges(t tally) {
	r.mu.Lock()
	most := r.explained
	for _, f := range r.faults {
		if f.to == forever {
			most += r.victims(f) * f.changes(rig.Now())
		}
	}
	r.mu.Unlock()
	for _, n := range r.nodes {
		// A start, and exchanges that have just failed because this machine is busy.
		most += 2*uint64(n.processes()) + 4
	}
	r.allowed = most
	if t.changes > most {
		r.breach("%d changes of state, the faults explain %d", t.changes, most)
	}
}

// flush has every node tell Redis the rest, and reads what Redis counts.
func (r *run) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range r.nodes {
		wg.Go(func() {
			if err := rig.Flush(ctx, n.lim); err != nil {
				r.breach("node %d could not flush although nothing was wrong: %v", n.place, err)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err == context.Canceled {
		return err
	}
	r.judge.expect(r.read(true))
	return nil
}

// settle compares notes once nothing is pending any more.
func (r *run) settle() {
	accounts := r.accounts()
	l, _, err := r.world.ledgers("")
	if err != nil {
		r.breach("%v", err)
	}
	r.books.audit(accounts, l, accounts, true)
	for i := range accounts {
		if n := accounts[i].stats.PendingUnits; n != 0 {
			r.breach("node %d: %d units still pending at the end", i, n)
		}
	}
	r.final = r.books.sum(accounts)
	r.judgeChanges(r.final)
	r.leave()
}

// leave closes every node in order, which must succeed.
func (r *run) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), healLimit)
	defer cancel()
	for _, n := range r.nodes {
		begun := rig.Now()
		if err := n.lim.Shutdown(ctx); err != nil && r.untroubled(n.place, begun, nil) {
			r.breach("node %d could not end in order although nothing was wrong: %v", n.place, err)
		}
	}
}

// goroutines returns how many there are, those apart that serve connections
// in the proxies: a pool has more of them at some times than at others.
func (r *run) goroutines() int {
	const perConn = 2
	n := runtime.NumGoroutine()
	for _, node := range r.nodes {
		n -= perConn * node.proxy.Conns()
	}
	return n
}

// judgeLeaks checks that every goroutine has ended.
func (r *run) judgeLeaks(before int) {
	for range 500 {
		if runtime.NumGoroutine() <= before {
			return
		}
		rig.Pause(context.Background(), 20*ms)
	}
	r.breach("%d goroutines before the run, %d after it", before, runtime.NumGoroutine())
	_ = pprof.Lookup("goroutine").WriteTo(r.out, 1)
}

// header says what is about to happen.
func (r *run) header() {
	fmt.Fprintf(r.out, "%d nodes, seed %d, for %v: each is asked %.0f times a second, for %d keys of %d rules at %g times their limits, and for junk.\n",
		len(r.nodes), r.seed, r.length, r.traffic.rate(), hotKeys*len(hotRules), len(hotRules), overload)
	fmt.Fprintln(r.out, "worst: the window that was the fullest, of what it might have held. changes: of state, of as many as the faults explain.")
	fmt.Fprintln(r.out, "losses: noticed, by node and shard. units: admitted = acked + forgiven + pending + expired + lost in crashes.")
	fmt.Fprintln(r.out, "heap: what is live, without buffers of connections, and without what waits to be judged.")
	r.columns("time", "admitted", "worst window", "heap", "gor.", "keys", "redis", "no TTL", "changes", "losses", "pending", "units")
}

func (r *run) columns(cells ...any) {
	fmt.Fprintf(r.out, "%8v  %8v  %-24v  %9v  %5v  %5v  %9v  %6v  %9v  %6v  %7v  %v\n", cells...)
}

// tell prints a line.
func (r *run) tell() {
	t := r.books.sum(r.accounts())
	w := r.judge.takeWorst()
	if w.tops(r.worst) {
		r.worst = w
	}
	r.columns((rig.Now() - r.start).Round(time.Second), t.admitted-r.told, r.describe(w),
		fmt.Sprintf("%.1f MiB", r.gauges.heap.latest/mib), r.gauges.goroutines.latest, r.gauges.keys.latest,
		fmt.Sprintf("%.1f MiB", r.gauges.memory.latest/mib), len(r.census.eternal),
		fmt.Sprintf("%d/%d", t.changes, r.allowed), t.losses, t.pending, t)
	r.told = t.admitted
	for _, s := range r.gauges.all() {
		if s.soars() {
			r.breach("%v", s)
		}
	}
}

// describe names a window.
func (r *run) describe(w finding) string {
	if w.bound == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f/%.0f %s", w.admitted, w.bound, r.traffic.items[w.key].rule.Name())
}

// String says where all units have gone.
func (t tally) String() string {
	return fmt.Sprintf("%d = %d + %d + %d + %d + %d", t.admitted, t.acked, t.forgiven, t.pending, t.expired+t.overflow, t.lost)
}

// summary ends the report.
func (r *run) summary() {
	fmt.Fprintf(r.out, "\nfaults:")
	for _, name := range sortedKeys(r.counts) {
		fmt.Fprintf(r.out, " %d %s,", r.counts[name], name)
	}
	fmt.Fprintf(r.out, " and %d exchanges that this machine was too busy for.\n", r.noise)
	for _, s := range r.gauges.all() {
		fmt.Fprintln(r.out, s)
		if _, _, grown, ok := s.grown(); ok && grown {
			r.breach("%v", s)
		}
	}
	fmt.Fprintf(r.out, "The fullest window of all: %s. States changed %d times, the faults explain %d. %d losses were noticed.\n",
		r.describe(r.worst), r.final.changes, r.allowed, r.final.losses)
	fmt.Fprintf(r.out, "units: %v\n", r.final)
	var report oracle.Report
	report.Add(checks, r.judge.fleet.steps)
	fmt.Fprint(r.out, &report)
	if r.breaches == 0 {
		fmt.Fprintln(r.out, "All promises kept.")
		return
	}
	fmt.Fprintf(r.out, "NOT as promised: %d times. The first: %s\nAgain, with the same fortune: go run ./internal/verify/soak -seed %d -nodes %d -for %v\n",
		r.breaches, r.first, r.seed, len(r.nodes), r.length)
}
