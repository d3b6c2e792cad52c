package hybrid_test

import (
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

var long = flag.Bool("long", false, "run the overload test with its full window of 10 s")

// log of one node: when it admitted a unit.
type admissions []time.Time

// offer asks for units at a steady rate until the deadline and records what
// is admitted. It catches up when the machine was busy, so that the load is
// what it says.
func offer(l *hybrid.Limiter, rule *limit.Rule, perSecond float64, d time.Duration) (log admissions) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	begun, asked := time.Now(), 0
	for now := begun; now.Sub(begun) < d; now = <-tick.C {
		for want := int(time.Since(begun).Seconds() * perSecond); asked < want; asked++ {
			if l.Allow("k", rule) {
				log = append(log, time.Now())
			}
		}
	}
	return log
}

// busiest returns the most admissions in any window of the given length.
func busiest(all admissions, window time.Duration) (most int) {
	slices.SortFunc(all, time.Time.Compare)
	from := 0
	for to := range all {
		for all[to].Sub(all[from]) >= window {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// Three nodes under threefold overload keep one limit: never much more, and
// nearly as much, in every window there is.
func TestRealOverload(t *testing.T) {
	srv := redistest.Start(t)
	window, windows := 2*time.Second, 3
	if *long {
		window = 10 * time.Second
	}
	const limitUnits, nodes = 1000, 3
	rule := limit.Must(limit.SlidingWindow("overload", limitUnits, window))
	fleet := realFleet(t, srv.Addr(), nodes, hybrid.Options{})
	perNode := 3 * limitUnits / window.Seconds() / nodes
	d := time.Duration(windows) * window
	logs := make([]admissions, nodes)
	var wg sync.WaitGroup
	for i, l := range fleet {
		wg.Go(func() { logs[i] = offer(l, rule, perNode, d) })
	}
	wg.Wait()
	all := slices.Concat(logs...)
	most := busiest(all, window)
	// What the others are offered in two exchanges, S + δ apart (the promise
	// of the package), and one sub-bucket's share of the limit, as much of which
	// may leave before its time.
	sync := (100 + 20) * time.Millisecond
	if !*long {
		sync *= 3 // a machine that is busy otherwise exchanges later
	}
	bound := limitUnits + int((nodes-1)*2*perNode*sync.Seconds()) + limitUnits/arith.Of(rule).Buckets
	least := limitUnits * windows * 97 / 100
	t.Logf("admitted %d in %v (%d or more wanted), at most %d in a window of %v (at most %d wanted)", len(all), d, least, most, window, bound)
	if most > bound {
		t.Errorf("%d admitted in one window, at most %d are promised", most, bound)
	}
	if len(all) < least {
		t.Errorf("%d admitted in %d windows of %d: less than 97 %%", len(all), windows, limitUnits)
	}
	for _, l := range fleet {
		flush(t, l)
		conserved(t, l, true)
	}
}
