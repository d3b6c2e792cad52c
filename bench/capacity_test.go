package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/capacity"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	capacityKeys     = 300
	capacityExponent = 1.1
	capacityLag      = time.Millisecond // to Redis
	capacitySettles  = 3 * time.Second  // some lags
	capacityMeasured = 10 * time.Second
)

// The formula for operators says how many keys a fleet reports, and in how many script
// calls. In virtual time, and from a seed: what is left to chance is the order of what
// happens at the same instant.
//
// A number of n reports may be 3·√n from its mean, more than which is a matter of 1 in
// 370 where they come at random; these come more evenly. Near their limits keys have a
// little left now and then of which the formula does not know: nearLimit is by how much less
// they may report. Calls may be half as many, because urgent reports wait for each other. With
// notices keys that refuse ask less often, and the formula is an upper bound.
func TestCapacity(t *testing.T) {
	const nearLimit = 0.1
	far := limit.Must(limit.TokenBucket("far", 1_000_000, time.Minute, 1_000_000))
	window := func(n int64, per time.Duration) *limit.Rule { return limit.Must(limit.SlidingWindow("window", n, per)) }
	for _, c := range []struct {
		fleet capacity.Fleet
		rate  float64 // checks a second, of all keys and nodes
		less  float64
	}{
		{capacity.Fleet{Nodes: 1, Rule: far}, 1500, 0},
		{capacity.Fleet{Nodes: 4, Rule: far}, 1500, 0},
		{capacity.Fleet{Nodes: 4, Rule: far, SyncInterval: 50 * time.Millisecond, MaxLag: 5 * time.Second}, 1000, 0},
		{capacity.Fleet{Nodes: 4, Rule: far, SyncInterval: time.Second}, 600, 0}, // most keys wait for a tick
		{capacity.Fleet{Nodes: 2, Rule: window(100_000, 2*time.Second)}, 600, 0}, // a lag of 0.5 s
		{capacity.Fleet{Nodes: 4, Rule: window(10, time.Second)}, 600, nearLimit},
		{capacity.Fleet{Nodes: 4, Rule: window(100, 10*time.Second)}, 600, nearLimit},
		{capacity.Fleet{Nodes: 4, Rule: limit.Must(limit.TokenBucket("scarce", 2, 10*time.Second, 2))}, 600, nearLimit},
	} {
		c.fleet.Exchange = capacityLag
		reports := c.fleet.Keys(capacity.Zipf(capacityKeys, capacityExponent, c.rate))
		t.Run(fmt.Sprintf("%v/%d/%v", c.fleet.Rule, c.fleet.Nodes, c.fleet.Lag()), func(t *testing.T) {
			settles := capacitySettles
			if c.less > 0 {
				settles += c.fleet.Rule.Period() // until nothing is left of what there was at first
			}
			keys, calls := measureReports(t, c.fleet, c.rate, settles)
			within := func(what string, got, want, less float64) {
				t.Logf("%s: %.0f, by the formula %.0f", what, got, want)
				if chance := 3 * math.Sqrt(want); got > want+chance || got < want*(1-less)-chance {
					t.Errorf("%.0f %s in %v, want %.0f (± %.0f, or %v less)", got, what, capacityMeasured, want, chance, less)
				}
			}
			within("keys reported", keys, reports.All()*capacityMeasured.Seconds(), c.less)
			within("script calls", calls, c.fleet.Calls(reports)*capacityMeasured.Seconds(), 5*c.less)
		})
	}
}

// measureReports has a fleet asked at random times, and counts what it reports.
func measureReports(t *testing.T, f capacity.Fleet, rate float64, settles time.Duration) (keys, calls float64) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1) // names and jitter of the nodes
	synctest.Test(t, func(t *testing.T) {
		nodes := newBubbleFleet(t, f.Nodes, capacityLag, hybrid.Options{SyncInterval: f.SyncInterval, MaxLag: f.MaxLag, Shards: 1, PollOnly: true})
		rng := rand.New(rand.NewPCG(1, 1))
		zipf := rand.NewZipf(rng, capacityExponent, 1, capacityKeys-1)
		names := keyNames(capacityKeys)
		ask := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				nodes[rng.IntN(len(nodes))].Allow(names[zipf.Uint64()], f.Rule)
				time.Sleep(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
			}
		}
		count := func(sign float64) {
			for _, l := range nodes {
				s := inside.Of(l).Figures()
				keys += sign * float64(s.KeysSynced)
				calls += sign * float64(s.Batches)
			}
		}
		ask(settles)
		count(-1)
		ask(capacityMeasured)
		count(1)
	})
	return keys, calls
}
