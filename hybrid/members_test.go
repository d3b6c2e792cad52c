package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A fleet of known size starts while Redis is away. Together it admits one limit,
// in the first moment too, in which nobody knows yet that Redis is away.
//
// Fault 71: ten processes start in front of a closed and of a silent port.
func TestFleetStartsDuringAnOutage(t *testing.T) {
	for name, fault := range map[string]func(*network){
		"refused": func(n *network) { n.refuse = true },
		"silent":  func(n *network) { n.swallow = true },
	} {
		for _, rule := range []*limit.Rule{hundred, limit.Must(limit.TokenBucket("f", 100, 24*time.Hour, 100))} {
			t.Run(name+"/"+arith.Of(rule).Algorithm.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					var nodes []*node
					for range 10 {
						net := new(network)
						fault(net)
						nodes = append(nodes, w.node(hybrid.Options{ExpectedNodes: 10}, net))
					}
					total := 0
					for range 100 { // 3 s
						for _, n := range nodes {
							total += admitted(n.Limiter, "k", rule, 5)
						}
						time.Sleep(30 * time.Millisecond)
					}
					if total != 100 {
						t.Errorf("the fleet has admitted %d of 100", total)
					}
					wantMode(t, nodes[0].Limiter, hybrid.Degraded)
					for _, n := range nodes {
						n.net.up()
					}
					time.Sleep(6 * time.Second)
					for _, n := range nodes {
						if s := n.State(); s.Mode != hybrid.Synced || s.Nodes != 10 {
							t.Errorf("%v, want it synced and counting 10 nodes", s)
						}
						conserved(t, n.Limiter, true)
					}
					w.wantUsed("k", rule, 100)
				})
			})
		}
	}
}

// A node that starts, or starts again, while Redis is away counts as many nodes as
// are expected until the others have had the time to return.
//
// Fault 71: the expected number lasts four heartbeats longer than the outage.
func TestExpectedNodesAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		net := new(network)
		net.down()
		n := w.node(hybrid.Options{ExpectedNodes: 5, MaxBackoff: time.Second}, net)
		time.Sleep(30 * time.Second)
		net.up()
		time.Sleep(3 * time.Second) // the longest pause between probes, and two heartbeats
		if s := n.State(); s.Mode != hybrid.Synced || s.Nodes != 5 {
			t.Errorf("%v, want it synced and counting 5 nodes", s)
		}
		net.down()
		time.Sleep(3 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		wantAdmitted(t, n.Limiter, "k", hundred, 100, 20)
		net.up()
		// A probe comes within 1 s. The number is held for 4 heartbeats of 1 s from its answer
		// on. The next beat is the first to report a smaller number: 1 s. That number counts
		// with the first beat that comes 1.5 s after it or later: 2 s.
		time.Sleep(8*time.Second + 500*time.Millisecond)
		if s := n.State(); s.Nodes != 1 {
			t.Errorf("%v, want it to count itself alone", s)
		}
	})
}

// Where Redis is there, expected nodes cost a burst that comes before its first
// answer, and nobody else.
func TestExpectedNodesWithRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const lag = 20 * time.Millisecond // of one exchange
		net := &network{lag: lag}
		n := w.node(hybrid.Options{ExpectedNodes: 4}, net)
		for _, rule := range []*limit.Rule{hundred, limit.Must(limit.TokenBucket("f", 100, 24*time.Hour, 100))} {
			wantAdmitted(t, n.Limiter, "burst", rule, 50, 25) // each costs 4
			if src := n.Take("burst", rule, 1).Source; src != limit.SourceUnsynced {
				t.Errorf("decided as %v before anything is known", src)
			}
		}
		begun := time.Now()
		for n.State().Mode != hybrid.Synced {
			time.Sleep(time.Millisecond)
		}
		if s := n.State(); s.Nodes != 4 {
			t.Errorf("%v, want the expected nodes until the others are there", s)
		}
		for _, rule := range []*limit.Rule{hundred, limit.Must(limit.TokenBucket("f", 100, 24*time.Hour, 100))} {
			// A key that comes after the first answer has its whole limit at once.
			wantAdmitted(t, n.Limiter, "later", rule, 200, 100)
		}
		// The others have it with the answer to their report, which has left with
		// the first answer: two exchanges, because the script is sent as well.
		time.Sleep(3*lag + 5*time.Millisecond)
		for _, rule := range []*limit.Rule{hundred, limit.Must(limit.TokenBucket("f", 100, 24*time.Hour, 100))} {
			wantAdmitted(t, n.Limiter, "burst", rule, 200, 75)
		}
		time.Sleep(3900*time.Millisecond - time.Since(begun))
		if s := n.State(); s.Nodes != 4 {
			t.Errorf("%v, want the expected nodes for four heartbeats", s)
		}
		// A beat within 1 s reports the smaller number; the second one after it makes it count.
		time.Sleep(3*time.Second + 500*time.Millisecond)
		if s := n.State(); s.Nodes != 1 {
			t.Errorf("%v, want it to count itself alone", s)
		}
		conserved(t, n.Limiter, true)
	})
}

// The other policies do until the first answer what they did without the option.
func TestExpectedNodesOfOtherPolicies(t *testing.T) {
	for _, policy := range []hybrid.Fallback{hybrid.FullLimit, hybrid.FailOpen, hybrid.FailClosed} {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.node(hybrid.Options{ExpectedNodes: 4, Fallback: policy}, nil)
			wantAdmitted(t, n.Limiter, "k", hundred, 200, 100)
		})
	}
}

// Two nodes take units more slowly than the bucket leaks, and report them when they have leaked
// already, in turns. Together they are faster: they get the rate, and no more than the bucket
// besides. Each report is one that nothing near the limit has made urgent.
func TestSteadyNodesShareARate(t *testing.T) {
	for eighth := range 8 * 2 {
		lag := []time.Duration{time.Second, 10 * time.Second}[eighth/8]
		second := lag * time.Duration(eighth%8) / 8 // after the first: between two of its reports
		t.Run(fmt.Sprint(lag, second), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				rule := limit.Must(limit.TokenBucket("b", 1, time.Second, int64(lag.Seconds())*20))
				start := func() *node { return w.node(hybrid.Options{MaxLag: lag}, nil) }
				nodes, begun, total := []*node{start()}, time.Now(), 0
				for range 60 * int(lag.Seconds()) {
					if len(nodes) == 1 && time.Since(begun) > second {
						nodes = append(nodes, start())
					}
					for _, n := range nodes {
						total += admitted(n.Limiter, "k", rule, 1)
					}
					time.Sleep(1050 * time.Millisecond)
				}
				most := rule.Limit()*3/2 + int64(time.Since(begun).Seconds())
				if int64(total) > most {
					t.Errorf("%d units in %v, at most %d", total, time.Since(begun), most)
				}
			})
		})
	}
}

// Five processes are replaced one by one while Redis is away. Each new one takes its share anew, because it
// cannot know what the old one has admitted: L · (nodes + restarts) / nodes.
//
// Fault 71: replaced processes get a share each, not a limit each.
func TestProcessesReplacedWithoutRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := hybrid.Options{ExpectedNodes: 5}
		nodes := w.fleet(5, o)
		for _, n := range nodes {
			n.net.down()
		}
		over, cancel := context.WithCancel(bg)
		cancel()
		for _, old := range nodes {
			net := new(network)
			net.down()
			time.Sleep(3 * time.Second)
			wantMode(t, old.Limiter, hybrid.Degraded)
			wantAdmitted(t, old.Limiter, "k", hundred, 200, 20)
			_ = old.Shutdown(over)
			n := w.node(o, net)
			before := admitted(n.Limiter, "k", hundred, 200) // it does not know yet that Redis is away
			time.Sleep(3 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			wantAdmitted(t, n.Limiter, "k", hundred, 200, 20-before)
		}
	})
}
