package hybrid_test

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Two processes divide their keys into other numbers of shards. They share nothing, and each
// says so for as long as the other is there; under another prefix it is another application.
//
// Fault 76: both say so, count nodes of their own kind, and corrupt nothing.
func TestRealOtherShards(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	one, many, foreign := quick, quick, quick
	many.Shards, foreign.KeyPrefix = 8, "other"
	var seen [3]happenings
	var nodes []*hybrid.Limiter
	for i, o := range []hybrid.Options{one, many, foreign} {
		o.OnEvent = seen[i].add
		nodes = append(nodes, realNode(t, srv.Addr(), o))
	}
	for i, what := range []string{"with 8 shards", "with 1 shards"} {
		l := nodes[i]
		// The figure is counted before the state is published and the event is passed on.
		eventually(t, "the other is noticed", func() bool {
			return l.Figures().Mismatches == 1 && l.State().Reason != "" && len(seen[i].of(hybrid.EventMismatch)) > 0
		})
		s := l.State()
		if s.Mode != hybrid.Synced || !strings.Contains(s.Reason, what) || s.Nodes != 1 {
			t.Errorf("node %d says %v, want that the other is there, %s", i, s, what)
		}
		if list := seen[i].of(hybrid.EventMismatch); len(list) != 1 || !strings.Contains(list[0].Reason, what) {
			t.Errorf("node %d has told %v", i, list)
		}
		wantAdmitted(t, l, "k", longTen, 20, 10)
		flush(t, l)
	}
	if s := nodes[2].State(); s.Reason != "" || nodes[2].Figures().Mismatches != 0 {
		t.Errorf("another application says %v", s)
	}
	for i, l := range nodes[:2] {
		if s := l.Figures(); s.BadReplies != 0 || s.Losses != 0 || s.Quarantined != 0 {
			t.Errorf("node %d: %v", i, s)
		}
	}
	if err := nodes[1].Shutdown(bg); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other has gone", func() bool { return nodes[0].Figures().Mismatches == 0 && nodes[0].State().Reason == "" })
	everyKeyExpires(t, dial(t, srv.Addr()))
}
