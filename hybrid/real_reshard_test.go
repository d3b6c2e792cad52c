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
// Fault 91: so does that of the channel of notices.
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
	c.noticesArrive()
	for _, word := range []string{"ASK", "MOVED", "TRYAGAIN"} {
		if n := answers(t, from, word) + answers(t, to, word); n == 0 {
			t.Errorf("nobody was answered %s: the slots moved when nobody looked", word)
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
