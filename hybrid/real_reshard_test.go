package hybrid_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Slots move from one master of a cluster to another while their keys are in
// use. Half moved, a slot answers some batches with TRYAGAIN and some with ASK;
// moved, its old owner answers with MOVED. Each unit is booked once, at the
// owner of the day, and the limiter hardly notices.
//
// Fault 19: slots migrate under load.
func TestRealSlotsMigrate(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form")
	}
	t.Parallel()
	k := redistest.StartCluster(t)
	busy := patient
	busy.MaxLag = 100 * time.Millisecond
	c := newCrew(t, busy, clusterClients(k, 3, time.Second)...)
	shared := names("shared-", 10)
	c.load(shared...)
	eventually(t, "load", func() bool { return c.all.sum() > 2000 })
	from, to := k.Masters[home(t, k, nodesKey())], k.Masters[(home(t, k, nodesKey())+1)%3]
	for _, slot := range slotsAt(t, k, from) {
		// About as long as the nodes need to report a key once; in the end the
		// slot is all moved, but nobody has said so.
		err := k.Migrate(slot, to, func(int) { <-time.After(60 * time.Millisecond) })
		if err != nil {
			t.Fatal(err)
		}
		c.diary.note("slot %d has moved", slot)
	}
	within(t, promise, "every node synced", allModes(c.nodes, hybrid.Synced))
	c.halt()
	c.flush()
	c.agreeInCluster(k)
	for _, word := range []string{"ASK", "MOVED", "TRYAGAIN"} {
		if n := answers(t, from, word) + answers(t, to, word); n == 0 {
			t.Errorf("nobody was answered %s: the slots moved when nobody looked", word)
		}
	}
}

// A slot takes its time to move, one key a second. Meanwhile a heartbeat, which
// asks for one key only, finds the shard well, and a batch, whose keys are on
// both sides, does not. The limiter neither goes to and fro nor loses anything.
//
// Fault 19: a slot stays half moved.
func TestRealSlotHalfMoved(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form")
	}
	t.Parallel()
	k := redistest.StartCluster(t)
	c := newCrew(t, patient, clusterClients(k, 3, time.Second)...)
	c.load()
	eventually(t, "load", func() bool { return c.all.sum() > 1000 })
	key := clusterKey(longWindow, ownKey(0, 0))
	slot, err := k.Slot(key)
	if err != nil {
		t.Fatal(err)
	}
	from, to := k.Masters[home(t, k, key)], k.Masters[(home(t, k, key)+1)%3]
	if err := k.Migrate(slot, to, func(int) { <-time.After(time.Second) }); err != nil {
		t.Fatal(err)
	}
	c.diary.note("moved")
	within(t, promise, "every node synced", allModes(c.nodes, hybrid.Synced))
	c.halt()
	c.flush()
	c.agreeInCluster(k)
	if n := answers(t, from, "TRYAGAIN") + answers(t, to, "TRYAGAIN"); n == 0 {
		t.Error("the slot was never seen half moved")
	}
	for i, l := range c.nodes {
		// Synced; degraded, resyncing and synced again for each time that a batch
		// has its keys on two sides, and, on a busy machine, for some that are late.
		if n := l.Stats().StateChanges; n > 1+2*6 {
			t.Errorf("node %d changed its state %d times", i, n)
		}
	}
}

// slotsAt returns some slots in use whose master is the given one, and that of
// the list of nodes.
func slotsAt(t testing.TB, k *redistest.Cluster, s *redistest.Server) (found []int) {
	t.Helper()
	nodes, err := k.Slot(nodesKey())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{nodes: true}
	found = append(found, nodes)
	for i := 0; i < ownKeys && len(found) < 8; i++ {
		slot, err := k.Slot(clusterKey(longWindow, ownKey(0, i)))
		if err != nil {
			t.Fatal(err)
		}
		owner, err := k.Owner(slot)
		if err != nil {
			t.Fatal(err)
		}
		if owner == s && !seen[slot] {
			seen[slot] = true
			found = append(found, slot)
		}
	}
	return found
}

// answers returns how often a server has answered with an error.
func answers(t testing.TB, s *redistest.Server, word string) int {
	t.Helper()
	info, err := s.Info("errorstats")
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(info["errorstat_"+word], "count="))
	return n
}
