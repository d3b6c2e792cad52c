package bench

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/bench/internal/bubble"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// newBubbleFleet starts limiters around a Redis that is embedded in a synctest
// bubble, where time passes only when nobody has anything to do. Each message
// to Redis takes lag. It returns when they know of each other.
func newBubbleFleet(t *testing.T, size int, lag time.Duration, o hybrid.Options) []*hybrid.Limiter {
	t.Helper()
	server := bubble.Start(t)
	nodes := make([]*hybrid.Limiter, size)
	for i := range nodes {
		l, err := hybrid.New(bubble.Client(t, server, lag), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		nodes[i] = l
	}
	time.Sleep(3 * time.Second) // some heartbeats
	for _, l := range nodes {
		if s := l.State(); s.Mode != hybrid.Synced || s.Nodes != size {
			t.Fatalf("%v, want %d nodes", s, size)
		}
	}
	return nodes
}
