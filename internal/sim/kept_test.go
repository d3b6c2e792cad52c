package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What is kept for new counters goes when it is over, and a minute after it was said at the
// earliest. So do counters that were dropped.
func TestKeptNoticesEnd(t *testing.T) {
	rule := smallFunnel(10, 2*time.Second)
	s := emptySim(t, 1, Options{SyncInterval: simInterval, HeartbeatInterval: simHeartbeat, Shards: 1}, 1, []*limit.Rule{rule})
	s.withNotices()
	n := s.addNode(Options{})
	s.run(3 * time.Second)
	used := func(key string, seconds int64) report.Notice {
		x := report.Notice{ID: redisstore.NoticeIDOf(key), Now: time.Duration(s.servers[0].time())}
		if seconds > 0 {
			x.Until = x.Now + time.Duration(seconds)*time.Second
		}
		return x
	}
	notices := []report.Notice{used("a", 10), used("b", 0), used("c", 100)}
	s.run(time.Second)
	n.step(reconcile.Received{Messages: []reconcile.Message{{Node: "other", Notices: notices}}})
	s.run(50 * time.Second)
	if kept := n.link.Kept(); kept != 3 {
		t.Errorf("%d kept, want 3", kept)
	}
	s.run(20 * time.Second)
	if kept := n.link.Kept(); kept != 1 {
		t.Errorf("%d kept after a minute, want 1", kept)
	}
	for i := range 3300 {
		if i == 1100 {
			s.run(3 * time.Second)
			n.forgetIdle()
		}
		n.take(fmt.Sprint("key", i), rule, 1)
	}
	if s.run(3 * time.Second); n.look().Addressable != 2200 {
		t.Errorf("%d counters can be spoken of, want 2200", n.look().Addressable)
	}
}
