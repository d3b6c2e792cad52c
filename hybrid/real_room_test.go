package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// admitsSoon waits until a node that refuses a key admits it, minutes before it asks by itself.
func admitsSoon(t *testing.T, l *hybrid.Limiter, key string, rule *limit.Rule) {
	t.Helper()
	eventually(t, "it admits again", func() bool { return l.Peek(key, rule).Allowed })
}

// One node has admitted a unit, another one the rest. The first knows of its own unit only, and
// hands it back: the other, which refuses, hears of that.
//
// Fault 90: Refund right after a key was used up.
func TestRealRefundByANodeThatKnowsLess(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	nodes := realFleet(t, srv.Addr(), 2, hybrid.Options{})
	a, b := nodes[0], nodes[1]
	listening(t, dial(t, srv.Addr()), 2)
	noticesArrive(t, a, b)
	noticesArrive(t, b, a)
	for _, rule := range []*limit.Rule{hourFive, limit.Must(limit.Funnel("bucket", 5, 5, time.Hour))} {
		wantAdmitted(t, a, "k", rule, 1, 1)
		flush(t, a)
		wantAdmitted(t, b, "k", rule, 4, 4)
		flush(t, b)
		wantAdmitted(t, b, "k", rule, 1, 0)
		if got := a.Refund("k", rule, 1); got != 1 {
			t.Fatalf("%d handed back", got)
		}
		admitsSoon(t, b, "k", rule)
	}
}

// A process resets a key as soon as it has started, before its first heartbeat has told it the
// channel, and ends.
//
// Fault 90: Reset right after a key was used up.
func TestRealResetByANewNode(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := realNode(t, srv.Addr(), hybrid.Options{})
	listening(t, dial(t, srv.Addr()), 1)
	for range 5 {
		exhausts(t, a, "k", hourFive)
		flush(t, a)
		wantAdmitted(t, a, "k", hourFive, 1, 0)
		b := newLimiter(t, dial(t, srv.Addr()), hybrid.Options{})
		if err := b.Reset(bg, "k", hourFive); err != nil {
			t.Fatal(err)
		}
		admitsSoon(t, a, "k", hourFive)
		if err := b.Shutdown(bg); err != nil {
			t.Fatal(err)
		}
	}
}
