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
	rule := limit.Must(limit.Funnel("debt", 10, 1, time.Hour))
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
			s := n.Stats()
			if s.ForgivenUnits != 104-want || s.AckedUnits != want+31 || s.PendingUnits != 0 || s.RolledBackKeys != 0 || s.Losses != 0 {
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
		rule := limit.Must(limit.Funnel("debt", 10, 1, each))
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
			if s := n.Stats(); s.ForgivenUnits != 0 || s.AckedUnits != 16 {
				t.Errorf("a unit in %v: %+v", each, s)
			}
			conserved(t, n.Limiter, true)
		})
	}
}
