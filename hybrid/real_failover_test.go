package hybrid_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// failoverClients returns clients that find their master through Sentinels, as
// the README recommends to make them.
func failoverClients(sentinels []string, n int) (clients []redis.UniversalClient) {
	for range n {
		clients = append(clients, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.GroupName, SentinelAddrs: sentinels,
			ContextTimeoutEnabled: true, MaxRetries: -1,
			DialTimeout: 200 * time.Millisecond, ReadTimeout: 200 * time.Millisecond, WriteTimeout: 200 * time.Millisecond,
			DialerRetries: 1, DisableIdentity: true,
		}))
	}
	return clients
}

func promoted(s *redistest.Server) func() bool {
	return func() bool { return s.Role() == "master" }
}

// The master is killed under load while its replica is up to date. The nodes
// go on by themselves, and are synced soon after the promotion; the new master
// has never seen the scripts, and gets every unit exactly once.
//
// Fault 15: a fail-over by Sentinels after kill -9.
// Fault 21: the promoted replica has no script in its cache.
// Fault 91: notices arrive again.
// Fault 120: Sentinels of other versions.
func TestRealMasterKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a fail-over")
	}
	t.Parallel()
	r := redistest.StartReplicaSet(t)
	c := newCrew(t, hybrid.Options{}, failoverClients(r.SentinelAddrs(), 3)...)
	before := c.exhaust(dial(t, r.Master.Addr()), "exhausted")
	c.load(names("shared-", 10)...)
	eventually(t, "load", func() bool { return c.all.sum() > 500 })
	if err := redistest.AwaitReplication(r.Master, r.Replica); err != nil {
		t.Fatal(err)
	}
	if n := scripts(t, r.Replica); n != 0 {
		t.Errorf("the replica has %d scripts already", n)
	}
	r.Master.Kill()
	c.diary.note("killed")
	c.degraded()
	c.fallsBack()
	c.recovered(promoted(r.Replica))
	for _, l := range c.nodes {
		wantAdmitted(t, l, "exhausted", longTen, 20, 0)
	}
	c.halt()
	c.flush()
	admin := dial(t, r.Replica.Addr())
	c.agree(admin, admin)
	c.noticesArrive()
	if got := totalIn(t, admin, counterKey(longTen, "exhausted")); got != before {
		t.Errorf("Redis counts %d units of the exhausted key, was %d", got, before)
	}
	if n := scripts(t, r.Replica); n == 0 {
		t.Error("the new master has not been told the scripts")
	}
}

// scripts returns how many scripts a server has in its cache.
func scripts(t testing.TB, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info("memory")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(info["number_of_cached_scripts"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A host stops in its tracks, and with it the master and the Sentinel that the
// clients have asked so far. Later it goes on as if nothing had happened, and
// executes what had reached it. One node knows no Sentinels and is still sent
// there: the server has become a replica, refuses its units, and is not
// taken for a Redis that works. It is sent to the new master at last. Every unit
// is booked once.
//
// Fault 16: SIGSTOP of the master, and SIGCONT after the fail-over.
// Fault 22: a server that is a replica now, READONLY.
func TestRealMasterFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a fail-over")
	}
	t.Parallel()
	r := redistest.StartReplicaSet(t)
	p, err := redistest.NewProxy(r.Master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c := newCrew(t, hybrid.Options{}, failoverClients(r.SentinelAddrs()[:1], 3)...)
	// The straggler is to see more probes than the defaults give it in time.
	straggler := c.join(hybrid.Options{MaxBackoff: 500 * time.Millisecond}, redis.NewClient(clientOptions(p.Addr())))
	c.meet()
	c.load(names("shared-", 10)...)
	eventually(t, "load", func() bool { return c.all.sum() > 500 })
	for _, s := range []*redistest.Server{r.Master, r.Sentinels[0]} {
		s.FreezeOrSkip(t)
	}
	c.diary.note("frozen")
	c.degraded()
	c.fallsBack()
	for i, l := range c.nodes {
		if s := l.State(); s.Reason != "timeout" {
			t.Errorf("node %d: %v", i, s)
		}
	}
	c.nodes = c.nodes[:3]
	c.recovered(promoted(r.Replica))
	c.nodes = append(c.nodes, straggler)

	p.BlackHole(true) // no client is to get an answer from a master of the past
	if err := r.Master.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := redistest.Demote(r.Master, r.Replica); err != nil {
		t.Fatal(err)
	}
	p.BlackHole(false)
	c.diary.note("thawed and demoted")
	c.refused(straggler)
	p.SetTarget(r.Replica.Addr()) // its connections stay, until one is refused
	eventually(t, "every node synced", allModes(c.nodes, hybrid.Synced))
	c.halt()
	c.flush()
	admin := dial(t, r.Replica.Addr())
	c.agree(admin, admin)
}

// refused checks that a node which can reach a replica only is degraded for
// that reason, and gets no answer that anything is booked.
func (c *crew) refused(l *hybrid.Limiter) {
	c.t.Helper()
	readonly := func() bool { s := l.State(); return s.Mode == hybrid.Degraded && s.Reason == "readonly" }
	eventually(c.t, "refused by the replica", readonly)
	before := l.Figures()
	eventually(c.t, "some probes more", func() bool { return l.Figures().Heartbeats > before.Heartbeats+1 })
	after := l.Figures()
	if !readonly() || after.BookedUnits != before.BookedUnits || after.PendingUnits <= before.PendingUnits || after.StateChanges != before.StateChanges {
		c.t.Errorf("a replica was taken for a master: %v, %+v, before %+v", l.State(), after, before)
	}
	c.diary.note("refused as it should be")
}

// The replication is cut some time before the master is killed, so that the new
// one has never heard of writes that were acknowledged. The nodes notice, and put
// back what they knew.
//
// What one node alone has used is exact again, to the unit. So is what all have
// used and had reported. An exhausted key stays exhausted. Of a key that
// all are using in the very moment it can only be said that no less is
// counted than any node has seen, and no more than was admitted and what was in
// flight: what others have seen of that comes back with their views, and is
// reported again by its sender, which cannot know.
//
// Fault 17: a fail-over that loses acknowledged writes.
func TestRealWritesLostByFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a fail-over")
	}
	t.Parallel()
	r := redistest.StartReplicaSet(t)
	c := newCrew(t, hybrid.Options{}, failoverClients(r.SentinelAddrs(), 3)...)
	master, replica := dial(t, r.Master.Addr()), dial(t, r.Replica.Addr())
	c.load("contended")
	eventually(t, "load", func() bool { return c.all.sum() > 300 })
	if err := r.CutReplication(); err != nil {
		t.Fatal(err)
	}
	c.diary.note("replication cut")
	known := ledgerSum(t, replica) // what the new master will know
	exhausted := c.exhaust(master, "exhausted")
	for _, l := range c.nodes {
		for k := range 10 {
			c.ask(l, fmt.Sprint("shared-", k), 3)
		}
	}
	for range 2 { // the second round brings what the others have reported in the first
		c.flush()
	}
	contended := totalIn(t, master, counterKey(longWindow, "contended"))
	c.flush() // now every node has seen as much
	eventually(t, "hundreds of units more, acknowledged", func() bool { return ledgerSum(t, master) > known+700 })
	r.Master.Kill()
	c.diary.note("killed")
	c.degraded()
	c.fallsBack()
	then := c.sums()
	c.recovered(promoted(r.Replica))
	for _, l := range c.nodes {
		wantAdmitted(t, l, "exhausted", longTen, 20, 0)
	}
	c.halt()
	c.flush()

	for i, l := range c.nodes {
		if s := l.Figures(); s.Losses+s.RolledBackKeys == 0 {
			t.Errorf("node %d has not noticed: %+v", i, s)
		}
		conserved(t, l, true)
	}
	if got := totalIn(t, replica, counterKey(longTen, "exhausted")); got != exhausted {
		t.Errorf("Redis counts %d units of the exhausted key, was %d", got, exhausted)
	}
	got, used := totalIn(t, replica, counterKey(longWindow, "contended")), c.all.forget("contended")
	if got < contended || got > used+then.PendingUnits {
		t.Errorf("Redis counts %d units of the contended key, seen were %d, admitted %d, in flight at most %d", got, contended, used, then.PendingUnits)
	}
	c.all.match(t, replica)
	// The ledgers go on from what the new master knew.
	if got, want := ledgerSum(t, replica), known+c.sums().BookedUnits-then.BookedUnits; got != want {
		t.Errorf("the ledgers add up to %d, want %d", got, want)
	}
	t.Logf("%d acknowledged units were lost and put back", then.BookedUnits-known)
}
