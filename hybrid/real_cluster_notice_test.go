package hybrid_test

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// While the master is away to which the channel's name belongs, notices about keys of the other masters
// arrive, also at a node that has started meanwhile, and nobody is deaf.
//
// Fault 108: the master of the channel is away.
func TestRealClusterNoticesWithoutTheirMaster(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form")
	}
	t.Parallel()
	k := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	victim := home(t, k, nodesKey())
	var nodes []*hybrid.Limiter
	clients := clusterClients(k, 3, patient.CommandTimeout)
	for _, rdb := range clients {
		t.Cleanup(func() { _ = rdb.Close() })
	}
	for _, rdb := range clients[:2] {
		nodes = append(nodes, newLimiter(t, rdb, patient))
	}
	eventually(t, "both know each other", func() bool { return nodes[0].State().Nodes == 2 && nodes[1].State().Nodes == 2 })
	k.Replicas[victim].FreezeOrSkip(t) // so that it does not take over
	k.Masters[victim].Kill()
	nodes = append(nodes, newLimiter(t, clients[2], patient))
	n := 0
	eventually(t, "all obey a notice about a key of another master", func() bool {
		key := atHome(t, k, hourFive, (victim+1)%3, n)
		n++
		nodes[0].TakeAtMost(key, hourFive, hourFive.Limit())
		for range 100 {
			if nodes[0].Stats().NoticesSent > 0 && nodes[1].Peek(key, hourFive).Remaining == 0 && nodes[2].Peek(key, hourFive).Remaining == 0 {
				return nodes[1].Stats().NoticesHeard > 0 && nodes[2].Stats().NoticesHeard > 0
			}
		}
		return false
	})
	for i, l := range nodes {
		eventually(t, "each knows of the outage", func() bool { return l.State().Mode == hybrid.Degraded })
		if s := l.State(); s.Deaf != "" {
			t.Errorf("node %d: %v, deaf: %q", i, s, s.Deaf)
		}
	}
}
