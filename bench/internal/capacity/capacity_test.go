package capacity

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
