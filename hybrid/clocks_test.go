package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Nodes whose clocks are hours apart and drift agree on one window, Redis'.
//
// Fault 34: nodes hours apart agree on one window.
func TestSkewedClocks(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.FixedWindow("fixed", 60, 10*time.Second)),
		limit.Must(limit.SlidingWindow("sliding", 60, 10*time.Second)),
		limit.Must(limit.Funnel("funnel", 60, 60, 10*time.Second)),
	} {
		t.Run(rule.Algorithm().String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var nodes []*node
				start := clock.System{}.Now()
				for _, c := range []clock.Clock{
					clock.System{},
					clock.Skewed{Of: clock.System{}, Offset: time.Hour, Start: start, Drift: 100 * time.Microsecond},
					clock.Skewed{Of: clock.System{}, Offset: -time.Hour, Start: start, Drift: -100 * time.Microsecond},
				} {
					nodes = append(nodes, w.synced(hybrid.Options{Clock: c}))
				}
				time.Sleep(1100 * time.Millisecond)
				// All nodes ask at 30 a second for four windows, from the
				// beginning of one.
				time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(10 * time.Second)))
				var all admissions
				perWindow := map[time.Time]int{}
				for begun := time.Now(); time.Since(begun) < 40*time.Second; time.Sleep(time.Second / 30) {
					for _, n := range nodes {
						if n.Allow("k", rule) {
							all = append(all, time.Now())
							perWindow[time.Now().Truncate(10*time.Second)]++
						}
					}
				}
				total := len(all)
				if rule.Algorithm() == limit.AlgorithmFixedWindow {
					for at, got := range perWindow {
						if got < 60 || got > 75 {
							t.Errorf("%d admitted in the window at %v, want 60 or little more", got, at)
						}
					}
				} else {
					factor := 1
					if rule.Algorithm() == limit.AlgorithmFunnel {
						factor = 2 // a full funnel, and what it leaks meanwhile
					}
					if most := busiest(all, 10*time.Second); most > 75*factor {
						t.Errorf("%d admitted in one window", most)
					}
				}
				if total < 230 || total > 330 {
					t.Errorf("%d admitted in four windows of 60", total)
				}
				for _, n := range nodes {
					s := n.Stats()
					// A unit admitted just before a fixed window ends has nothing
					// to tell any more; all others are told in time.
					late := s.ExpiredUnits > 4 || s.ExpiredUnits > 0 && rule.Algorithm() != limit.AlgorithmFixedWindow
					if s.Losses != 0 || s.RolledBackKeys != 0 || late || s.StateChanges != 1 {
						t.Errorf("the clocks caused trouble: %+v", s)
					}
				}
			})
		})
	}
}

// The clock of the checks stands still, or goes back: reports and heartbeats
// go on, and no key gets a second limit.
//
// Fault 35: no second limit, and the reconciler goes on.
func TestClockStandsOrGoesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		rule := limit.Must(limit.Funnel("f", 10, 10, 10*time.Second))
		now := clock.NewManual(time.Now())
		n := w.synced(hybrid.Options{Clock: now})
		wantAdmitted(t, n.Limiter, "k", rule, 20, 10)
		time.Sleep(500 * time.Millisecond)
		conserved(t, n.Limiter, true)
		now.Advance(-time.Hour)
		wantAdmitted(t, n.Limiter, "k", rule, 20, 0)
		time.Sleep(500 * time.Millisecond)
		now.Advance(time.Hour)
		time.Sleep(5 * time.Second)
		if s := n.State(); s.Mode != hybrid.Synced || n.Stats().Heartbeats < 5 {
			t.Errorf("%v, %d heartbeats", s, n.Stats().Heartbeats)
		}
	})
}
