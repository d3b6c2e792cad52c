package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
)

// groups lists the servers that a node knows of, by address and shards.
func (n *simNode) groups() (list []string) {
	for _, v := range n.look().Servers {
		list = append(list, fmt.Sprint(v.Address, v.Shards))
	}
	slices.Sort(list)
	return list
}

// placed sets where the shards are, and says how the node groups them then.
func (n *simNode) placed(t *testing.T, addrs []string, want ...string) {
	t.Helper()
	n.core.Place(addrs)
	n.looked = false
	slices.Sort(want)
	if got := n.groups(); !slices.Equal(got, want) {
		t.Fatalf("shards are grouped as %v, want %v", got, want)
	}
}

// Shards follow their servers: as well as these are, so are they.
func TestShardsAreWhereTheClientSays(t *testing.T) {
	s, n := lonely(t, Options{Shards: 4}, 2, 8)
	n.placed(t, nil, "server0[0 2]", "server1[1 3]")
	n.placed(t, []string{"", "server1", "server0", ""}, "server0[0 2]", "server1[1 3]")
	old := n.server(0).Offset

	// Fail-over: another one has taken over all that the old master had.
	n.placed(t, []string{"replica", "server1", "replica", "server1"}, "replica[0 2]", "server1[1 3]")
	if v := n.server(2); !v.Up || v.Offset != old || v.Slots != simPipelines {
		t.Errorf("the new master begins as %+v", v)
	}

	// A shard moves between servers that are well.
	n.placed(t, []string{"server1", "server1", "replica", "server1"}, "replica[2]", "server1[0 1 3]")
	n.placed(t, s.addrs(), "server0[0 2]", "server1[1 3]")
}

// A shard that moves from a server that is down to one that is not has something to report
// it first, and the other way round nobody knows yet whether it is down.
func TestShardMovesFromADeadServer(t *testing.T) {
	s, n := lonely(t, Options{Shards: 4}, 2, 8)
	s.servers[0].kill()
	n.takeAll(8)
	s.run(3 * time.Second)
	if st := n.core.State(); st.Mode != reconcile.Degraded || st.Down != 2 {
		t.Fatalf("%v", st)
	}
	n.placed(t, []string{"server1", "server1", "server0", "server0"}, "[0]", "[3]", "server0[2]", "server1[1]")
	if a, b := n.server(0), n.server(3); !a.Down || !b.Up {
		t.Errorf("the one from the dead server is %+v, that to it is %+v", a, b)
	}
	s.servers[0].restart()
	s.run(5 * time.Second)
	n.placed(t, s.addrs(), "server0[0 2]", "server1[1 3]")
	if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
		t.Errorf("%v, %d units unsynced", n.core.State(), n.unsynced())
	}
}

// A slow server that answers for some shards in time, and not for others, is none that
// refuses them.
func TestHalfOfAnAnswer(t *testing.T) {
	s, n := lonely(t, Options{Shards: 4, DegradeAfter: 3}, 1, 16)
	s.cut = 0.3
	for range 200 {
		n.takeAll(16)
		s.run(100 * time.Millisecond)
		if len(n.look().Servers) != 1 {
			t.Fatalf("shards are grouped as %v", n.groups())
		}
	}
	s.cut = 0
	s.run(5 * time.Second)
	if n.core.State().Mode != reconcile.Synced || n.unsynced() != 0 {
		t.Errorf("%v, %d units unsynced", n.core.State(), n.unsynced())
	}
}

// A node that starts while Redis is away knows so from the first exchange: until then each
// node of a fleet admits the whole limit.
func TestStartWithoutRedis(t *testing.T) {
	s := emptySim(t, 1, Options{Shards: 4}, 2, nil)
	s.oracle.loose, s.down = true, true
	n := s.addNode(Options{})
	s.run(2 * time.Millisecond)
	if st := n.core.State(); st.Mode != reconcile.Degraded || st.Down != 4 || n.stats.Failures.Load() > 4 {
		t.Errorf("%v after %d exchanges have failed", st, n.stats.Failures.Load())
	}
}
