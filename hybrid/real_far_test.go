package hybrid_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// farNodes is two limiters with default options that know each other, over a wire.
type farNodes struct {
	t     *testing.T
	wire  *redistest.Far
	nodes []*hybrid.Limiter
	logs  []*changes
	were  []int // modes that each had before it was used
}

func newFarNodes(t *testing.T, trip, jitter time.Duration, idle int) *farNodes {
	wire, err := redistest.NewFar(redistest.Start(t).Addr(), trip)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Close)
	wire.Move(trip, jitter)
	f := &farNodes{t: t, wire: wire}
	for range 2 {
		log := new(changes)
		o := hybrid.RedisOptions(wire.Addr())
		o.MinIdleConns = idle
		f.nodes = append(f.nodes, newLimiter(t, client(t, o), hybrid.Options{OnStateChange: log.add}))
		f.logs = append(f.logs, log)
	}
	for i, l := range f.nodes {
		// Wanted are 3 s, see TestRealFarAwayIsReached.
		eventually(t, "both know each other", func() bool {
			modes := f.logs[i].modes() // they are logged a moment later
			return l.State().Mode == hybrid.Synced && l.State().Nodes == 2 && len(modes) > 0 && modes[len(modes)-1] == hybrid.Synced
		})
		f.were = append(f.were, len(f.logs[i].modes()))
	}
	return f
}

// use asks each node for each of 300 keys ten times a second, and returns for how long units were
// pending at the most, less the longest time for which this goroutine had to wait for a processor, and how
// many keys a call has carried.
func (f *farNodes) use(d time.Duration) (oldest time.Duration, perCall float64) {
	const keys = 300
	rule := limit.Must(limit.SlidingWindow("ample", 400, 10*time.Second))
	keysOf := func() (calls, keys uint64) {
		for _, l := range f.nodes {
			s := l.Stats()
			calls, keys = calls+s.Batches, keys+s.KeysSynced
		}
		return calls, keys
	}
	calls, synced := keysOf()
	began, stood := time.Now(), time.Duration(0)
	for k := 0; time.Since(began) < d; {
		for want := int(time.Since(began) * 10 * keys / time.Second); k < want; k++ {
			for _, l := range f.nodes {
				l.Allow(fmt.Sprint("key", k%keys), rule)
			}
		}
		for _, l := range f.nodes {
			oldest = max(oldest, l.Stats().OldestPending)
		}
		slept := time.Now()
		<-time.After(10 * time.Millisecond)
		stood = max(stood, time.Since(slept)-10*time.Millisecond)
	}
	callsNow, syncedNow := keysOf()
	return oldest - stood, float64(syncedNow-synced) / float64(max(callsNow-calls, 1))
}

// undisturbed fails if a mode has changed since the nodes knew each other.
func (f *farNodes) undisturbed(when string) {
	f.t.Helper()
	for i, log := range f.logs {
		if modes := log.modes()[f.were[i]:]; slices.ContainsFunc(modes, func(m hybrid.Mode) bool { return m != hybrid.Synced }) {
			f.t.Errorf("%s: modes %v", when, modes)
		}
	}
}

// farOldest is for how long a unit may be pending on a machine three times slower than the simulator, which
// has a third of it as its bound.
func farOldest(longest time.Duration) time.Duration {
	return 3 * (time.Second + 100*time.Millisecond + 2*longest + 50*time.Millisecond)
}

// Fault 93: each way takes up to half of the distance longer. That is no overload.
func TestRealJitter(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const trip, jitter = 80 * time.Millisecond, 40 * time.Millisecond
	f := newFarNodes(t, trip, jitter, 0)
	f.use(2 * time.Second) // connections are made, and all keys are new
	oldest, keys := f.use(6 * time.Second)
	t.Logf("pending for %v, %.0f keys a call", oldest, keys)
	if most := farOldest(trip + 2*jitter); oldest > most {
		t.Errorf("a unit was pending for %v, at most %v", oldest, most)
	}
	// A call leaves when the one before is answered. Each of 300 keys is due once a second.
	if least := 300 * trip.Seconds() / 2; keys < least {
		t.Errorf("%.0f keys a call, at least %.0f", keys, least)
	}
	f.undisturbed("jitter")
}

// Fault 93: Redis moves to another zone and back while it is in use.
func TestRealDistanceChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until distances are known")
	}
	t.Parallel()
	// Connections exist: to make one takes longer than a call has until the distance is known.
	f := newFarNodes(t, time.Millisecond, 0, 6)
	f.use(time.Second)
	for _, trip := range []time.Duration{80 * time.Millisecond, 150 * time.Millisecond, time.Millisecond} {
		f.wire.Move(trip, 0)
		during, _ := f.use(12 * time.Second) // it is known after 10 s, and what waits by then is reported
		oldest, keys := f.use(2 * time.Second)
		t.Logf("%v away: pending for %v, and for %v while that was not known; %.0f keys a call", trip, oldest, during, keys)
		if most := farOldest(trip); oldest > most {
			t.Errorf("%v away: a unit was pending for %v, at most %v", trip, oldest, most)
		}
		f.wire.Stall(300 * time.Millisecond)
		f.use(time.Second)
		f.undisturbed(fmt.Sprint(trip, " away"))
	}
	f.wire.Hang(true)
	f.nodes[0].Allow("one more", longWindow)
	eventually(t, "the server hangs", func() bool { return f.nodes[0].State().Mode == hybrid.Degraded })
	f.wire.Hang(false)
	eventually(t, "it goes on", func() bool { return f.nodes[0].State().Mode == hybrid.Synced })
}
