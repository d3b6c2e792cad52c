package capacity

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var far = limit.Must(limit.Funnel("far", 1_000_000, 1_000_000, time.Minute))

// The example of docs/operations.md: ten nodes, customers with a generous limit, and some who ask for
// twice what they may.
func ExampleFleet() {
	f := Fleet{Nodes: 10, Rule: limit.Must(limit.SlidingWindow("plan", 60_000, time.Minute)), Exchange: time.Millisecond}
	small := f
	small.Rule = limit.Must(limit.SlidingWindow("trial", 3_000, time.Minute))
	busy, seldom, held := f.Key(100), f.Key(0.1), small.Key(100)
	for _, k := range []struct {
		what string
		r    Reports
	}{{"asked 100 times a second", busy}, {"once in 10 s", seldom}, {"twice as often as its limit allows", held}} {
		fmt.Printf("a key %s: %.1f reports a second\n", k.what, k.r.All())
	}
	all := Reports{1000*busy.Due + 100_000*seldom.Due + 20*held.Due, 1000*busy.Urgent + 100_000*seldom.Urgent + 20*held.Urgent}
	fmt.Printf("1,000, 100,000 and 20 of them: %.0f checks, %.0f reports, %.0f calls a second\n", 1000*100+100_000*0.1+20*100, all.All(), f.Calls(all))
	// Output:
	// a key asked 100 times a second: 10.0 reports a second
	// a key once in 10 s: 0.1 reports a second
	// a key twice as often as its limit allows: 49.8 reports a second
	// 1,000, 100,000 and 20 of them: 112000 checks, 20991 reports, 1101 calls a second
}

// Ends of the formula that can be told without it.
func TestKey(t *testing.T) {
	for _, c := range []struct {
		what string
		f    Fleet
		rate float64
		want Reports
	}{
		{"never asked", Fleet{Rule: far}, 0, Reports{}},
		{"asked all the time: once a lag", Fleet{Nodes: 1, Rule: far}, 1000, Reports{Due: 1}},
		{"by each node", Fleet{Nodes: 4, Rule: far}, 4000, Reports{Due: 4}},
		{"a lag of its own", Fleet{Nodes: 1, Rule: far, MaxLag: 5 * time.Second}, 1000, Reports{Due: 0.2}},
		{"whole ticks", Fleet{Nodes: 1, Rule: far, MaxLag: 250 * time.Millisecond}, 1000, Reports{Due: 5}},
		{"asked seldom: each time", Fleet{Nodes: 1, Rule: far}, 0.0001, Reports{Due: 0.0001}},
		{"each unit of a small limit", Fleet{Nodes: 10, Rule: limit.Must(limit.SlidingWindow("ten", 10, time.Hour))}, 0.001, Reports{Urgent: 0.001}},
	} {
		got := c.f.Key(c.rate)
		if math.Abs(got.All()-c.want.All()) > 0.002*c.want.All() || math.Abs(got.Urgent-c.want.Urgent) > 0.002*c.want.All() {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// A shorter period leaves a shorter lag, but never less than a tick.
func TestLag(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{time.Hour: time.Second, 2 * time.Second: 500 * time.Millisecond, 10 * time.Millisecond: syncInterval} {
		f := Fleet{Rule: limit.Must(limit.Funnel("f", 10, 10, period))}
		if got := f.Lag(); got != want {
			t.Errorf("the lag of 10 per %v is %v, want %v", period, got, want)
		}
	}
}

// The mean of what is cut off is what a sum of all probabilities says.
func TestAtMost(t *testing.T) {
	for _, mean := range []float64{0.01, 0.7, 5, 60} {
		for _, most := range []float64{1, 2, 7, 50, 1000} {
			p, units, below := math.Exp(-mean), 0.0, 0.0
			for k := range 400 {
				units += p * math.Min(float64(k), most)
				if float64(k) < most {
					below += p
				}
				p *= mean / float64(k+1)
			}
			if u, reached := atMost(mean, most); math.Abs(u-units) > 1e-9 || math.Abs(reached-(1-below)) > 1e-9 {
				t.Errorf("mean %v, at most %v: %v and %v, want %v and %v", mean, most, u, reached, units, 1-below)
			}
		}
	}
}

func TestZipf(t *testing.T) {
	list := Zipf(3, 1, 11)
	for i, want := range []float64{6, 3, 2} {
		if math.Abs(list[i]-want) > 1e-9 {
			t.Errorf("%v", list)
		}
	}
}

// As many calls as ticks, or as it takes to carry all.
func TestCalls(t *testing.T) {
	f := Fleet{Nodes: 2, Rule: far}
	for _, c := range []struct {
		r    Reports
		want float64
	}{{Reports{Due: 0.001}, 0.001}, {Reports{Due: 400}, 20}, {Reports{Due: 20_000}, 120}, {Reports{Due: 400, Urgent: 2}, 22}} {
		if got := f.Calls(c.r); math.Abs(got-c.want) > 0.01*c.want {
			t.Errorf("%+v: %v calls a second, want %v", c.r, got, c.want)
		}
	}
}
