package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// farFleet is two nodes whose Redis can be moved while they are in use.
type farFleet struct {
	*sim
	tick          int
	oldest        time.Duration // the longest that a unit was pending since mark
	batches, keys uint64        // of both nodes, at mark
}

const farKeys = 500

// newFarFleet starts the nodes at a distance. It fails unless they are synchronised after 3 s.
func newFarFleet(t *testing.T, trip, jitter time.Duration) *farFleet {
	t.Helper()
	f := &farFleet{sim: emptySim(t, 1, Options{Shards: 1}, 1, []*limit.Rule{
		limit.Must(limit.SlidingWindow("scarce", 20, 10*time.Second)), limit.Must(limit.SlidingWindow("ample", 400, 10*time.Second)),
	})}
	f.oracle.loose = true
	f.servers[0].capacity = usual()
	f.move(trip, jitter)
	for range 2 {
		f.addNode(Options{})
	}
	f.run(3 * time.Second)
	for _, n := range f.nodes {
		if n.told.Mode != reconcile.Synced || n.told.Nodes != 2 {
			t.Fatalf("%v away, after 3 s: %s is %+v", trip, n.name, n.told)
		}
		n.modes = nil
	}
	return f
}

// move changes the distance: how long a round trip takes, and up to how much longer each way.
func (f *farFleet) move(trip, jitter time.Duration) { f.far, f.jitter = int64(trip/2), int64(jitter) }

// longest is the longest that a round trip takes, with what the simulator adds to each way.
func (f *farFleet) longest() time.Duration { return 2 * time.Duration(f.far+f.jitter+500_000) }

// mark begins to measure anew, and returns how many keys a flight has carried since the last time.
func (f *farFleet) mark() (perFlight float64) {
	var batches, keys uint64
	for _, n := range f.nodes {
		batches, keys = batches+n.stats.Batches.Load(), keys+n.stats.KeysSynced.Load()
	}
	perFlight = float64(keys-f.keys) / float64(batches-f.batches)
	f.oldest, f.batches, f.keys = 0, batches, keys
	return perFlight
}

// use asks each node for each key ten times a second.
func (f *farFleet) use(d time.Duration) {
	const part = farKeys / 50
	for end := f.now + int64(d); f.now < end; f.tick++ {
		f.run(2 * time.Millisecond)
		for i, n := range f.nodes {
			for k := range part {
				n.take(fmt.Sprint("key", (f.tick%50*part+k+i*farKeys/2)%farKeys), f.rules[k%2], 1)
			}
		}
		if f.tick%5 == 0 {
			f.look()
		}
	}
}

// look notes for how long units have been pending.
func (f *farFleet) look() {
	for _, n := range f.nodes {
		var sv counter.Survey
		for _, c := range n.counters {
			c.Survey(n.time(), &sv)
		}
		if sv.Oldest != 0 {
			f.oldest = max(f.oldest, time.Duration(n.time()-sv.Oldest))
		}
	}
}

// inTime fails if a unit was pending since mark for longer than it takes to collect it, to wait for an
// exchange that is under way, and to hear of it.
func (f *farFleet) inTime() {
	f.t.Helper()
	if most := f.opt.MaxLag + f.opt.SyncInterval + 2*f.longest() + 50*time.Millisecond; f.oldest > most {
		f.t.Errorf("round trips of up to %v: a unit was pending for %v, at most %v", f.longest(), f.oldest, most)
	}
}

// undisturbed fails if anything went wrong since the start.
func (f *farFleet) undisturbed() {
	f.t.Helper()
	f.stayedSynced()
	if n := f.failures(); n > 0 {
		f.t.Errorf("round trips of up to %v: %d failures", f.longest(), n)
	}
}

// Fault 93: each way takes up to half of the distance longer. That is no overload either.
func TestSimJitter(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 150 * time.Millisecond} {
		steady, f := newFarFleet(t, trip, 0), newFarFleet(t, trip, trip/2)
		for _, f := range []*farFleet{steady, f} {
			f.mark()
			f.use(8 * time.Second)
			f.inTime()
			f.undisturbed()
		}
		oldest := f.oldest
		keys, usual := f.mark(), steady.mark()
		t.Logf("%v away: oldest pending unit %v, %.0f keys a flight, %.0f without jitter", trip, oldest, keys, usual)
		if keys < usual*3/4 {
			t.Errorf("%v away: a flight has %.0f keys, %.0f without jitter", trip, keys, usual)
		}
	}
}

// follows fails unless the nodes know the distance, what a flight may carry does not collapse, and
// deadlines are as long as that takes.
func (f *farFleet) follows() {
	f.t.Helper()
	for _, n := range f.nodes {
		v, d := n.server(0), n.core.Patience()
		if trip := 2 * f.far; int64(v.Distance) < trip || int64(v.Distance) > int64(f.longest())+ms || d != max(simTimeout, 5*int64(v.Distance)) {
			f.t.Errorf("%s, %v away: believes %v, waits for %v", n.name, time.Duration(trip), v.Distance, time.Duration(d))
		}
		if v.Budget < v.MostBudget/8 {
			f.t.Errorf("%s, %v away: a flight may cost %v of %v", n.name, f.longest(), v.Budget, v.MostBudget)
		}
	}
}

// Fault 93: Redis moves to another zone and back while it is in use. The nodes have followed within
// two periods, and nothing fails meanwhile. At any distance a stall of 0.3 s is no outage, and a
// server that hangs is one.
func TestSimDistanceChanges(t *testing.T) {
	const period = 5 * time.Second                 // in which a distance is measured
	for _, jitter := range []time.Duration{0, 2} { // none; up to half of the distance
		f := newFarFleet(t, time.Millisecond, 0)
		f.use(2 * time.Second)
		for _, trip := range []time.Duration{80 * time.Millisecond, 150 * time.Millisecond, time.Millisecond} {
			if jitter > 0 {
				jitter = trip / 2
			}
			farther := int64(trip/2) > f.far
			f.move(trip, jitter)
			f.mark()
			if f.use(time.Second); farther {
				f.use(2*period - time.Second)
				t.Logf("%v away: pending for %v meanwhile", trip, f.oldest)
				f.use(2 * time.Second) // what waits by then is reported
			}
			f.mark()
			f.use(2 * time.Second)
			f.follows()
			f.inTime()
			f.undisturbed()
			f.stalls(300 * time.Millisecond)
			f.stayedSynced()
			f.hangs()
		}
	}
}

// stalls freezes the server for a while.
func (f *farFleet) stalls(d time.Duration) {
	f.servers[0].freeze()
	f.use(d)
	f.servers[0].thaw()
	f.use(time.Second)
}

// hangs fails unless the nodes notice a server that hangs when two calls had no answer in time. The
// first may begin a SyncInterval after an answer that is on its way, the second after a pause, and be
// a heartbeat, which has a quarter longer. All is well again in the end.
func (f *farFleet) hangs() {
	f.t.Helper()
	const step = 10 * time.Millisecond
	deadline := time.Duration(f.nodes[0].core.Patience())
	most := max(500*time.Millisecond, 2*deadline) + deadline/4 + f.longest() + f.opt.SyncInterval + simRetry*3/2 + step
	f.servers[0].freeze()
	began := f.now
	for _, n := range f.nodes {
		for n.told.Mode != reconcile.Degraded && f.now <= began+int64(most) {
			f.use(step)
		}
		if n.told.Mode != reconcile.Degraded {
			f.t.Errorf("round trips of up to %v: %s is %v although the server hangs for %v", f.longest(), n.name, n.told.Mode, most)
		}
	}

	f.servers[0].thaw()
	f.use(5 * time.Second)
	for _, n := range f.nodes {
		n.modes = nil
		n.stats.Failures.Store(0)
	}
}

// Fault 93: Redis is farther away than a call usually has time. The nodes reach it because each attempt
// has longer, and stay synchronised.
func TestSimFartherThanADeadline(t *testing.T) {
	f := newFarFleet(t, 600*time.Millisecond, 0)
	failed := f.failures()
	f.use(5 * time.Second)
	if f.stayedSynced(); f.failures() > failed {
		t.Errorf("%d failures, %d of them while the nodes found out how far it is", f.failures(), failed)
	}
}

// Fault 93: while it is used Redis moves so far away that no call is answered in time. That is an outage,
// and it ends by itself: the distance is known with the first answer.
func TestSimMovesOutOfReach(t *testing.T) {
	f := newFarFleet(t, time.Millisecond, 0)
	f.use(time.Second)
	f.move(600*time.Millisecond, 0)
	for range 12 { // two rounds to notice, a probe each 2 s at the latest, and what was missed
		f.oracle.struck(f.servers[0]) // who cannot reach it may be degraded
		f.use(time.Second)
	}
	for _, n := range f.nodes {
		if d := n.server(0).Distance; n.told.Mode != reconcile.Synced || d < 600*time.Millisecond {
			t.Errorf("%s is %v, and believes Redis to be %v away", n.name, n.told.Mode, d)
		}
	}
}
