package hybrid_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Of 100 units that a leaky bucket of 10 admits in an outage, Redis books what the leaky bucket
// holds and MaxDebt more, and the part of a unit that has leaked. What was admitted before the outage is booked wholly, and so
// is what comes after it. All of a window is reported.
func TestMaxDebt(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("debt", 1, time.Hour, 10))
	for debt, want := range map[time.Duration]int64{0: 21, -1: 11, 25 * time.Hour: 36, 1000 * time.Hour: 104} {
		inBubble(t, func(t *testing.T, w *world) {
			var log logbook
			n := w.synced(hybrid.Options{MaxDebt: debt, Fallback: hybrid.FailOpen, Logger: slog.New(&log)})
			wantAdmitted(t, n.Limiter, "k", rule, 4, 4)
			time.Sleep(time.Second)
			n.net.down()
			n.Allow("notice", longWindow)
			time.Sleep(5 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			wantAdmitted(t, n.Limiter, "k", rule, 100, 100)
			wantAdmitted(t, n.Limiter, "w", longTen, 30, 30)
			n.net.up()
			time.Sleep(10 * time.Second)
			wantMode(t, n.Limiter, hybrid.Synced)
			s := n.Figures()
			if s.ForgivenUnits != 104-want || s.BookedUnits != want+31 || s.PendingUnits != 0 || s.RolledBackKeys != 0 || s.Losses != 0 {
				t.Errorf("MaxDebt %v: want %d booked: %+v", debt, want, s)
			}
			conserved(t, n.Limiter, true)
			if line := fmt.Sprintf("forgiven=%d", 104-want); !strings.Contains(log.text(), line) {
				t.Errorf("MaxDebt %v: no %s in\n%s", debt, line, log.text())
			}
			// The level is what was booked, less what has leaked in a minute.
			wait := n.Take("k", rule, 1).RetryAfter
			if most := time.Duration(want-9) * time.Hour; wait > most || wait < most-time.Minute {
				t.Errorf("MaxDebt %v: refused for %v, want %v", debt, wait, most)
			}
		})
	}
}

// A reservation that was made in an outage, and waits, keeps its place: what is due
// before it is booked, however much that is, and however long it waits.
func TestDebtKeepsReservations(t *testing.T) {
	for _, each := range []time.Duration{time.Hour, 3650 * 24 * time.Hour} {
		rule := limit.Must(limit.TokenBucket("debt", 1, each, 10))
		inBubble(t, func(t *testing.T, w *world) {
			n := w.synced(hybrid.Options{MaxDebt: -1, Fallback: hybrid.FullLimit})
			n.net.down()
			n.Allow("notice", longWindow)
			time.Sleep(5 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			wantAdmitted(t, n.Limiter, "k", rule, 20, 10)
			r := n.ReserveN("k", rule, 5)
			if !r.OK() || r.Delay() == 0 {
				t.Fatalf("%+v", r)
			}
			n.net.up()
			time.Sleep(10 * time.Second)
			wantMode(t, n.Limiter, hybrid.Synced)
			if s := n.Figures(); s.ForgivenUnits != 0 || s.BookedUnits != 16 {
				t.Errorf("a unit in %v: %+v", each, s)
			}
			conserved(t, n.Limiter, true)
		})
	}
}

// One node of a fleet is cut off for 8 s while all are asked for more than a leaky bucket lets through. When it
// is back, with its share of those 8 s on top of what the others have used, the fleet admits again within a
// drain time. By the node's units alone it would take 4 s with two nodes and 2 s with four.
//
// Fault 80: nobody is refused for longer than a drain time.
func TestCutOffForLong(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("busy", 50, time.Second, 25))
	for _, size := range []int{2, 4} {
		inBubble(t, func(t *testing.T, w *world) {
			const interval, drain, unit = 50 * time.Millisecond, 500 * time.Millisecond, 20 * time.Millisecond
			nodes := w.fleet(size, hybrid.Options{SyncInterval: interval, HeartbeatInterval: 500 * time.Millisecond, MaxBackoff: 200 * time.Millisecond})
			// ask returns the longest time for which nobody was admitted.
			ask := func(d time.Duration) (longest time.Duration) {
				last := time.Now()
				for end := last.Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
					for _, n := range nodes {
						if n.Allow("k", rule) {
							last = time.Now()
						}
					}
					longest = max(longest, time.Since(last))
				}
				return longest
			}
			ask(time.Second)
			nodes[0].net.down()
			ask(8 * time.Second)
			wantMode(t, nodes[0].Limiter, hybrid.Degraded)
			nodes[0].net.up()
			// The others hear of it within two intervals, and admit when there is room for a unit.
			if got := ask(6 * time.Second); got > drain+unit+2*interval {
				t.Errorf("%d nodes: nobody was admitted for %v", size, got)
			}
			wantMode(t, nodes[0].Limiter, hybrid.Synced)
			for i, n := range nodes {
				flush(t, n.Limiter)
				conserved(t, n.Limiter, true)
				if s := n.Figures(); (s.ForgivenUnits > 0) != (i == 0) || s.Losses+s.RolledBackKeys > 0 {
					t.Errorf("%d nodes: node %d: %+v", size, i, s)
				}
			}
		})
	}
}
