package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The number of live nodes follows those that come and those that vanish.
//
// Fault 31: each start is a node of its own.
func TestLiveNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(3, hybrid.Options{})
		nodes[2].net.down() // as if it had crashed
		time.Sleep(1900 * time.Millisecond)
		if n := nodes[0].State().Nodes; n != 3 {
			t.Errorf("%d nodes after fewer than 3 missed beats, want 3", n)
		}
		time.Sleep(4300 * time.Millisecond) // 3 beats, and three of ours
		for _, n := range nodes[:2] {
			if s := n.State(); s.Nodes != 2 {
				t.Errorf("%v, want 2 nodes", s)
			}
		}
		if s := nodes[2].State(); s.Nodes != 3 || s.Mode != hybrid.Degraded {
			t.Errorf("the one cut off: %v, want 3 nodes as last heard of", s)
		}
		nodes[2].net.up()
		time.Sleep(6*time.Second + 1100*time.Millisecond)
		for _, n := range nodes {
			if s := n.State(); s.Nodes != 3 || s.Mode != hybrid.Synced {
				t.Errorf("%v, want 3 nodes, synced", s)
			}
		}
	})
}

// During an outage the fleet admits what its policy gives it, starting from
// what was known, and all of it is booked afterwards.
func TestFallbackPolicies(t *testing.T) {
	window := limit.Must(limit.SlidingWindow("w", 90, 24*time.Hour))
	funnel := limit.Must(limit.TokenBucket("f", 90, 24*time.Hour, 90))
	for _, c := range []struct {
		policy hybrid.Fallback
		fresh  int // the fleet's share of a key that nobody has used, with 3 nodes
		used   int // and of one of which 30 of 90 were used
	}{
		{hybrid.FairShare, 90, 60},
		{hybrid.FullLimit, 270, 180},
		{hybrid.FailOpen, 3000, 3000},
		{hybrid.FailClosed, 0, 0},
	} {
		for _, rule := range []*limit.Rule{window, funnel} {
			t.Run(c.policy.String()+"/"+arith.Of(rule).Algorithm.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					nodes := w.fleet(3, hybrid.Options{Fallback: c.policy})
					for _, n := range nodes {
						wantAdmitted(t, n.Limiter, "used", rule, 10, 10)
					}
					// A first report may leave with a part of the ten, so that who reports
					// next learns of that part only: all have reported before all ask again.
					for range 2 {
						for _, n := range nodes {
							flush(t, n.Limiter)
						}
						time.Sleep(1500 * time.Millisecond) // more than a lag
					}
					for _, n := range nodes {
						n.net.down()
					}
					time.Sleep(3 * time.Second)
					fresh, used := 0, 0
					for _, n := range nodes {
						wantMode(t, n.Limiter, hybrid.Degraded)
						fresh += admitted(n.Limiter, "fresh", rule, 1000)
						used += admitted(n.Limiter, "used", rule, 1000)
						if n.AllowN("huge", rule, 91) {
							t.Error("more than the limit was admitted at once")
						}
						if !n.AllowN("used", rule, 0) {
							t.Error("no units were refused")
						}
					}
					if fresh != c.fresh || used != c.used {
						t.Errorf("the fleet admitted %d and %d, want %d and %d", fresh, used, c.fresh, c.used)
					}
					if res := nodes[0].Take("fresh", rule, 1); c.policy == hybrid.FailClosed &&
						(res.Allowed || res.Remaining != 0 || res.RetryAfter <= 0 || res.RetryAfter > time.Minute) {
						t.Errorf("%+v, want a refusal with a wait", res)
					}
					for _, n := range nodes {
						n.net.up()
					}
					time.Sleep(7 * time.Second)
					for _, n := range nodes {
						wantMode(t, n.Limiter, hybrid.Synced)
						conserved(t, n.Limiter, true)
					}
					if rule == window && c.policy != hybrid.FailClosed {
						if got := w.total("fresh", rule); got < int64(c.fresh) {
							t.Errorf("Redis has booked %d units of the outage, want %d", got, c.fresh)
						}
					}
				})
			})
		}
	}
}

// Nodes that come back one by one keep counting each other: the first one
// must not take itself for the only one.
func TestShareSurvivesASecondOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(3, hybrid.Options{MaxBackoff: 5 * time.Second}) // they are waited for as long
		for _, n := range nodes {
			n.net.down()
		}
		time.Sleep(30 * time.Second) // all of their entries have expired
		nodes[0].net.up()
		eventually(t, "synced", func() bool { return nodes[0].State().Mode == hybrid.Synced })
		// They are waited for 5 s from now. A number that is not held would fall one and a
		// half heartbeats after it was reported, that is with the second one from now.
		time.Sleep(3 * time.Second)
		if s := nodes[0].State(); s.Mode != hybrid.Synced || s.Nodes != 3 {
			t.Errorf("%v, want it synced and counting 3 nodes", s)
		}
		nodes[0].net.down()
		time.Sleep(3 * time.Second)
		wantMode(t, nodes[0].Limiter, hybrid.Degraded)
		total := 0
		for _, n := range nodes {
			total += admitted(n.Limiter, "k", limit.Must(limit.SlidingWindow("w", 90, time.Hour)), 200)
		}
		if total != 90 {
			t.Errorf("the fleet admits %d of 90 in the second outage", total)
		}
	})
}

// A limiter without Redis shares nothing and promises the same.
func TestLocalOnly(t *testing.T) {
	l := newLimiter(t, nil, hybrid.Options{})
	if s := l.State(); s.Mode != hybrid.LocalOnly || s.Nodes != 1 {
		t.Errorf("%v", s)
	}
	wantAdmitted(t, l, "k", longTen, 20, 10)
	if res := l.Take("k", longTen, 1); res.Allowed || res.Source != limit.SourceLocal {
		t.Errorf("%+v", res)
	}
	if err := l.Flush(bg); err != nil {
		t.Error(err)
	}
	s := l.Figures()
	if s.Allowed.Local != 10 || s.Denied.Local != 11 || s.AdmittedUnits != 10 || s.PendingUnits != 0 {
		t.Errorf("%+v", s)
	}
	if err := l.Shutdown(bg); err != nil {
		t.Error(err)
	}
	wantMode(t, l, hybrid.Closed)
	wantAdmitted(t, l, "k", longTen, 5, 0)
}
