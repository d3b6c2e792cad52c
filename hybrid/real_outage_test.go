package hybrid_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// Redis is killed and comes back empty. Every node notices within a heartbeat, idle or not; they report to Redis
// again what they know; an exhausted key stays so, for a node that joins later too.
//
// Faults 21, 28: an exhausted key stays so after a restart.
func TestRealDataLost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	o := hybrid.Options{HeartbeatInterval: 500 * time.Millisecond, MaxBackoff: 500 * time.Millisecond}
	nodes, admin := realFleet(t, srv.Addr(), 3, o), dial(t, srv.Addr())
	for i, l := range nodes {
		admitted(l, "exhausted", longTen, 20) // more than there is, so that all know it
		admitted(l, fmt.Sprint("own", i), hundred, 5+i)
	}
	for _, l := range append(nodes, nodes...) { // the second round carries what the first has booked
		flush(t, l)
	}
	before := totalIn(t, admin, counterKey(longTen, "exhausted"))
	srv.Kill()
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	for i, l := range nodes {
		eventually(t, "noticed", func() bool { return l.Figures().Losses > 0 })
		eventually(t, "restored", func() bool { return totalIn(t, admin, counterKey(hundred, fmt.Sprint("own", i))) == int64(5+i) })
	}
	eventually(t, "restored", func() bool { return totalIn(t, admin, counterKey(longTen, "exhausted")) == before })
	eventually(t, "synced", allModes(nodes, hybrid.Synced))
	late := realNode(t, srv.Addr(), o)
	if err := late.Preload(bg, []string{"exhausted"}, longTen); err != nil {
		t.Fatal(err)
	}
	for _, l := range append(nodes, late) {
		wantAdmitted(t, l, "exhausted", longTen, 20, 0)
		conserved(t, l, true)
	}
	everyKeyExpires(t, admin)
}

// Redis is stopped in its tracks for 2 s under load. No check waits for it;
// the limiter degrades and comes back; nothing is counted twice although the
// frozen server executes what had reached it.
//
// Faults 4, 5: a frozen server executes later what has been given up, and nothing counts twice.
func TestRealFrozen(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	// A check that did wait would take a second.
	o := hybrid.Options{CommandTimeout: time.Second, MaxBackoff: time.Second}
	nodes := realFleet(t, srv.Addr(), 2, o)
	var all books
	var wg sync.WaitGroup
	stop := make(chan struct{})
	worst := make([]time.Duration, len(nodes))
	for i, l := range nodes {
		wg.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				begun := time.Now()
				all.take(l, fmt.Sprint("key", k%20), 1)
				worst[i] = max(worst[i], time.Since(begun))
			}
		})
	}
	<-time.After(300 * time.Millisecond)
	if err := srv.Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	eventually(t, "degraded", allModes(nodes, hybrid.Degraded))
	<-time.After(time.Until(frozen.Add(2 * time.Second)))
	if err := srv.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "synced", allModes(nodes, hybrid.Synced))
	<-time.After(200 * time.Millisecond)
	close(stop)
	wg.Wait()
	for i, l := range nodes {
		flush(t, l)
		conserved(t, l, true)
		if worst[i] > 500*time.Millisecond {
			t.Errorf("a check took %v", worst[i])
		}
	}
	admin := dial(t, srv.Addr())
	all.match(t, admin)
	if got := ledgerSum(t, admin); got != all.sum() {
		t.Errorf("the ledgers add up to %d, admitted were %d", got, all.sum())
	}
}

// Deployments with different prefixes do not see each other: neither counters
// nor nodes.
//
// Fault 30: deployments with other prefixes neither see nor count each other.
func TestRealPrefixes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := realNode(t, srv.Addr(), hybrid.Options{KeyPrefix: "blue"})
	b := realNode(t, srv.Addr(), hybrid.Options{KeyPrefix: "green"})
	wantAdmitted(t, a, "k", longTen, 20, 10)
	flush(t, a)
	b.AllowN("k", longTen, 11)
	flush(t, b)
	wantAdmitted(t, b, "k", longTen, 20, 10)
	flush(t, b)
	if a.State().Nodes != 1 || b.State().Nodes != 1 {
		t.Errorf("they count each other: %v, %v", a.State(), b.State())
	}
	admin := dial(t, srv.Addr())
	for _, k := range admin.Keys(bg, "*").Val() {
		if !strings.HasPrefix(k, "blue:1:{") && !strings.HasPrefix(k, "green:1:{") && k != "blue:{0}:layouts" && k != "green:{0}:layouts" {
			t.Errorf("a key without its prefix and version: %s", k)
		}
	}
	everyKeyExpires(t, admin)
}

// A limiter that asks Redis each time and one that decides by itself count
// the same counters.
//
// Fault 49: long, binary and empty keys are one counter in both limiters.
func TestRealRemoteAndHybridShareACounter(t *testing.T) {
	srv := redistest.Start(t)
	rdb := dial(t, srv.Addr())
	r, err := remote.New(rdb, remote.Options{CommandTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l := realNode(t, srv.Addr(), hybrid.Options{})
	for _, rule := range []*limit.Rule{longTen, longFunnel, limit.Must(limit.FixedWindow("fixed", 10, 24*time.Hour))} {
		for _, key := range []string{"k", strings.Repeat("long", 100), "a}b{c", "\x00\r\n", ""} {
			wantAdmitted(t, l, key, rule, 4, 4)
			flush(t, l)
			res, err := r.Take(bg, key, rule, 4)
			if err != nil || !res.Allowed || res.Remaining != 2 {
				t.Fatalf("%v of %q: %+v, %v", rule, key, res, err)
			}
			flush(t, l)
			wantAdmitted(t, l, key, rule, 5, 2)
			flush(t, l)
			if res, err = r.Take(bg, key, rule, 1); err != nil || res.Allowed {
				t.Fatalf("%v of %q: %+v, %v", rule, key, res, err)
			}
			if err := r.Reset(bg, key, rule); err != nil {
				t.Fatal(err)
			}
			flush(t, l)
			wantAdmitted(t, l, key, rule, 20, 10)
		}
	}
	flush(t, l)
	everyKeyExpires(t, rdb)
}
