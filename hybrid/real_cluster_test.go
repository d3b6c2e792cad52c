package hybrid_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// clusterClients returns clients of a cluster, as the README recommends to make
// them. They look at the cluster anew once a minute, unless they are asked to.
func clusterClients(k *redistest.Cluster, n int, timeout time.Duration) (clients []redis.UniversalClient) {
	for range n {
		clients = append(clients, redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: k.Addrs(), ContextTimeoutEnabled: true,
			DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
			DialerRetries: 1, DisableIdentity: true, MinRetryBackoff: -1, MaxRetryBackoff: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	return clients
}

// patient is for tests in which a master that lives but is late, because the
// machine is busy, must not look like one that is dead: a dead one refuses at
// once. All else is as by default.
var patient = hybrid.Options{CommandTimeout: 2 * time.Second}

// home returns which of the masters, as they were at the beginning, a key of
// Redis lives on.
func home(t testing.TB, k *redistest.Cluster, redisKey string) int {
	t.Helper()
	slot, err := k.Slot(redisKey)
	if err != nil {
		t.Fatal(err)
	}
	for i := range k.Masters {
		if slot < (i+1)*16384/len(k.Masters) {
			return i
		}
	}
	t.Fatalf("%s is in slot %d", redisKey, slot)
	return 0
}

// atHome returns the n-th key of a rule that lives on a master.
func atHome(t testing.TB, k *redistest.Cluster, rule *limit.Rule, master, n int) string {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprint("home-", i)
		if home(t, k, clusterKey(rule, key)) != master {
			continue
		}
		if n == 0 {
			return key
		}
		n--
	}
	t.Fatalf("so few keys live on master %d", master)
	return ""
}

func nodesKey() string {
	ks, err := redisstore.NewKeyspace("", 0)
	if err != nil {
		panic(err)
	}
	return ks.NodesKey()
}

// unaffected has the load watched: a check of a key that does not live on the
// victim must rest on what Redis says, always. It returns how many did not.
func (c *crew) unaffected(k *redistest.Cluster, victim int, shared []string) (wrong *atomic.Int64) {
	c.t.Helper()
	keys := slices.Clone(shared)
	for i := range c.nodes {
		for n := range ownKeys {
			keys = append(keys, ownKey(i, n))
		}
	}
	spared := map[string]bool{}
	for _, key := range keys {
		spared[key] = home(c.t, k, clusterKey(longWindow, key)) != victim
	}
	wrong = new(atomic.Int64)
	c.watch = func(key string, res limit.Result) {
		if spared[key] && res.Source == limit.SourceDegraded && wrong.Add(1) < 10 {
			c.diary.note("%s: %+v", key, res)
		}
	}
	return wrong
}

// A master of a cluster is killed under load, the one that keeps the list of
// nodes. Keys that live on the others do not notice. The client is one that
// looks for new masters once a minute only; it is asked to look earlier.
//
// Fault 18: a master of a cluster dies.
// Fault 21: the promoted replica has no script in its cache.
// Fault 91: notices arrive again: their channel was that of the dead master.
// Fault 120: a Cluster of other versions.
func TestRealClusterMasterKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form and to fail over")
	}
	t.Parallel()
	k := redistest.StartCluster(t)
	c := newCrew(t, patient, clusterClients(k, 3, time.Second)...)
	victim := home(t, k, nodesKey())
	shared := names("shared-", 10)
	wrong := c.unaffected(k, victim, shared)
	c.load(shared...)
	eventually(t, "load", func() bool { return c.all.sum() > 1000 })
	k.Masters[victim].Kill()
	c.diary.note("killed")
	c.degraded()
	c.recovered(promoted(k.Replicas[victim]))
	c.halt()
	c.flush()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d checks of keys on the other masters were decided by the fallback", n)
	}
	c.agreeInCluster(k)
	c.noticesArrive()
	if n := scripts(t, k.Replicas[victim]); n == 0 {
		t.Error("the new master has not been told the scripts")
	}
}

// A master of a cluster is away for as long as it takes to look closely: its
// replica cannot take over yet. A key of another master has its whole limit
// still, and what is admitted of it is booked; a key of the dead one is down
// to the node's fair share of what was left. The dead master is the one to which the channel of notices belongs:
// notices about keys of the others arrive all the same, also at a node that starts meanwhile.
//
// Fault 18: what a dead master of a cluster leaves untouched.
// Fault 108: the master of the channel is away.
func TestRealClusterShardsApart(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form and to fail over")
	}
	t.Parallel()
	k := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	c := newCrew(t, patient, clusterClients(k, 3, time.Second)...)
	victim := home(t, k, nodesKey())
	other := (victim + 1) % 3
	dead, alive, fresh := atHome(t, k, hundred, victim, 0), atHome(t, k, hundred, other, 0), atHome(t, k, hundred, other, 1)
	for _, key := range []string{dead, alive} {
		wantAdmitted(t, c.nodes[0], key, hundred, 10, 10)
	}
	c.flush()
	for _, l := range c.nodes {
		for _, key := range []string{dead, alive} {
			l.AllowN(key, hundred, 101) // only makes it look the key up
		}
	}
	c.flush()
	if err := redistest.AwaitReplication(k.Masters[victim], k.Replicas[victim]); err != nil {
		t.Fatal(err)
	}
	k.Replicas[victim].FreezeOrSkip(t)
	k.Masters[victim].Kill()
	c.diary.note("killed")
	c.nodes[0].Allow(dead, hundred)
	want := []int{29, 30, 30}   // a third of 90 each, with the one above
	for i, l := range c.nodes { // the others notice by their heartbeats
		eventually(t, "cut off", func() bool { // its keys know it a moment before its state says so
			return l.Peek(dead, hundred).Source == limit.SourceDegraded && l.State().Mode == hybrid.Degraded
		})
		c.partlyDown(i)
		wantAdmitted(t, l, dead, hundred, 200, want[i])
	}
	l := c.nodes[0]
	wantAdmitted(t, l, alive, hundred, 200, 90)
	wantAdmitted(t, l, fresh, hundred, 200, 100)
	admin := dial(t, k.Masters[other].Addr())
	for _, key := range []string{alive, fresh} {
		eventually(t, "booked", func() bool { return totalIn(t, admin, clusterKey(hundred, key)) == 100 })
	}
	second := c.nodes[1]
	second.AllowN(fresh, hundred, 101) // only makes it look the key up
	var unavailable *hybrid.UnavailableError
	if err := second.Flush(bg); !errors.As(err, &unavailable) {
		t.Errorf("a third of the shards is cut off, and Flush says %v", err)
	}
	for _, key := range []string{alive, fresh} {
		wantAdmitted(t, second, key, hundred, 20, 0)
		if s := second.Peek(key, hundred).Source; s != limit.SourceSynced {
			t.Errorf("%s: decided as %v", key, s)
		}
	}
	client := clusterClients(k, 1, time.Second)[0]
	t.Cleanup(func() { client.Close() })
	late := newLimiter(t, client, patient)
	tries, key := 0, ""
	eventually(t, "both obey a notice about a key of another master", func() bool {
		if tries%100 == 0 { // a notice may be lost: then another key
			key = atHome(t, k, hourFive, other, tries/100)
			l.TakeAtMost(key, hourFive, hourFive.Limit())
		}
		tries++
		return second.Peek(key, hourFive).Remaining == 0 && late.Peek(key, hourFive).Remaining == 0 &&
			second.Figures().NoticesHeard > 0 && late.Figures().NoticesHeard > 0
	})
	for i, l := range append(c.nodes, late) {
		if s := l.State(); s.NoticesDown != "" {
			t.Errorf("node %d: %v, notices down: %q", i, s, s.NoticesDown)
		}
	}
	for i := range c.nodes {
		c.partlyDown(i) // still: all this was in the outage
	}
	if err := k.Replicas[victim].Thaw(); err != nil {
		t.Fatal(err)
	}
	c.recovered(promoted(k.Replicas[victim]))
	c.flush()
	c.agreeInCluster(k)
	if got := totalIn(t, dial(t, k.Replicas[victim].Addr()), clusterKey(hundred, dead)); got != 10+3*30 {
		t.Errorf("Redis counts %d units of the key that was cut off, want 100", got)
	}
}

// partlyDown checks that a node says it is cut off from a part of the shards.
func (c *crew) partlyDown(i int) {
	c.t.Helper()
	if s := c.nodes[i].State(); s.Mode != hybrid.Degraded || s.Down == 0 || s.Down > 32 {
		c.t.Errorf("node %d: %v, %d shards down; want a third of 64 at most, about", i, s, s.Down)
	}
}

// agreeInCluster is agree for those that are masters now.
func (c *crew) agreeInCluster(k *redistest.Cluster) {
	c.t.Helper()
	var masters []*redis.Client
	for _, s := range k.Nodes() {
		if s.Role() == "master" {
			masters = append(masters, dial(c.t, s.Addr()))
		}
	}
	if len(masters) != len(k.Masters) {
		c.t.Fatalf("there are %d masters", len(masters))
	}
	rdb := clusterClients(k, 1, time.Second)[0]
	defer rdb.Close()
	c.agree(rdb, masters...)
}
