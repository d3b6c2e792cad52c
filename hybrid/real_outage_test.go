package hybrid_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// Redis loses everything in the middle of a window, by FLUSHALL or because it
// is killed and comes back empty. Every node notices within a heartbeat, idle
// or not; they report to Redis again what they know; an exhausted key stays so,
// for a node that joins later too.
//
// Faults 21, 28: an exhausted key stays so after FLUSHALL and after a restart.
func TestRealDataLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *redistest.Server, *redis.Client){
		"flushall": func(t *testing.T, _ *redistest.Server, rdb *redis.Client) {
			if err := rdb.FlushAll(bg).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"kill and empty restart": func(t *testing.T, srv *redistest.Server, _ *redis.Client) {
			srv.Kill()
			if err := srv.Restart(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			o := hybrid.Options{HeartbeatInterval: 500 * time.Millisecond, MaxBackoff: 500 * time.Millisecond}
			nodes := realFleet(t, srv.Addr(), 3, o)
			admin := dial(t, srv.Addr())
			rules := []*limit.Rule{longTen, longFunnel}
			for _, rule := range rules {
				// More than there is, so that all know it.
				for _, l := range nodes {
					admitted(l, "exhausted", rule, 20)
				}
			}
			for i, l := range nodes {
				admitted(l, "shared", hundred, 10*(i+1))
				admitted(l, fmt.Sprint("own", i), hundred, 5+i)
			}
			for range 2 { // the second round carries what the first has booked
				for _, l := range nodes {
					flush(t, l)
				}
			}
			before := totalIn(t, admin, counterKey(longTen, "exhausted"))
			lose(t, srv, admin)
			eventually(t, "every node has noticed", func() bool {
				for _, l := range nodes {
					if l.Stats().Losses == 0 {
						return false
					}
				}
				return true
			})
			restored := map[string]int64{
				counterKey(hundred, "shared"): 60, counterKey(hundred, "own0"): 5,
				counterKey(hundred, "own1"): 6, counterKey(hundred, "own2"): 7,
				counterKey(longTen, "exhausted"): before,
			}
			for key, want := range restored {
				eventually(t, "restored: "+key, func() bool { return totalIn(t, admin, key) == want })
			}
			eventually(t, "synced", allModes(nodes, hybrid.Synced))
			for _, rule := range rules {
				for _, l := range nodes {
					wantAdmitted(t, l, "exhausted", rule, 20, 0)
				}
			}
			late := realNode(t, srv.Addr(), o)
			for _, rule := range rules {
				late.AllowN("exhausted", rule, 11) // only makes it look the key up
				eventually(t, "looked up", func() bool {
					return late.Take("exhausted", rule, 11).Source == limit.SourceSynced
				})
				wantAdmitted(t, late, "exhausted", rule, 20, 0)
			}
			for _, l := range nodes {
				conserved(t, l, true)
			}
			everyKeyExpires(t, admin)
		})
	}
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

// The script cache is flushed again and again under load.
//
// Fault 21: the same under load on a real server.
func TestRealScriptFlush(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	l := realNode(t, srv.Addr(), quickPatient)
	admin := dial(t, srv.Addr())
	var all books
	for i := range 300 {
		all.take(l, fmt.Sprint("key", i%10), 1)
		if i%3 == 0 {
			if err := admin.ScriptFlush(bg).Err(); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Millisecond)
	}
	flush(t, l)
	all.match(t, admin)
	if s := l.Stats(); s.Failures != 0 || s.StateChanges != 1 {
		t.Errorf("a flushed script cache was noticed: %+v", s)
	}
}

// An outage of a fleet of three: together they admit one limit, from what is
// left of it; afterwards Redis knows all of it.
func TestRealOutageOfAFleet(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, err := redistest.NewProxy(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	nodes := realFleet(t, p.Addr(), 3, hybrid.Options{MaxBackoff: 500 * time.Millisecond})
	total := admitted(nodes[0], "k", hundred, 40)
	for range 2 {
		for _, l := range nodes {
			l.AllowN("k", hundred, 101)
			flush(t, l)
		}
	}
	p.Refuse(true)
	eventually(t, "degraded", allModes(nodes, hybrid.Degraded))
	for _, l := range nodes {
		total += admitted(l, "k", hundred, 200)
	}
	// 60 are left: 20 for each of the three.
	if total != 100 {
		t.Errorf("%d of 100 admitted", total)
	}
	p.Refuse(false)
	eventually(t, "synced", allModes(nodes, hybrid.Synced))
	if got := totalIn(t, dial(t, srv.Addr()), counterKey(hundred, "k")); got != int64(total) {
		t.Errorf("Redis counts %d, admitted were %d", got, total)
	}
	for _, l := range nodes {
		conserved(t, l, true)
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

// A key of another type fails alone, and heals once it is deleted.
//
// Fault 27: one key fails alone, stays as it is, and heals.
func TestRealWrongType(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	o := quick
	o.Shards = 1
	l := realNode(t, srv.Addr(), o)
	ks, err := redisstore.NewKeyspace("", 1)
	if err != nil {
		t.Fatal(err)
	}
	bad, good := ks.CounterKey(longTen, "bad"), ks.CounterKey(longTen, "good")
	if err := admin.LPush(bg, bad, "somebody's list").Err(); err != nil {
		t.Fatal(err)
	}
	admitted(l, "bad", longTen, 3)
	admitted(l, "good", longTen, 4)
	eventually(t, "the neighbour is booked", func() bool { return totalIn(t, admin, good) == 4 })
	eventually(t, "the key is in quarantine", func() bool { return l.Stats().Quarantined > 0 })
	wantMode(t, l, hybrid.Synced)
	wantAdmitted(t, l, "bad", longTen, 20, 7)
	if got := admin.Type(bg, bad).Val(); got != "list" {
		t.Errorf("somebody's list became a %s", got)
	}
	admin.Del(bg, bad)
	eventually(t, "healed", func() bool { return totalIn(t, admin, bad) == 10 })
	eventually(t, "its books balance", func() bool { return l.Stats().PendingUnits == 0 })
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

// The permission to run scripts is taken away and given back.
//
// Fault 25: rights are taken away and given back.
// Fault 120: the words of errors in other versions.
func TestRealNoPermission(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	do := func(args ...any) {
		t.Helper()
		if err := admin.Do(bg, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all")
	co := clientOptions(srv.Addr())
	co.Username, co.Password = "app", "secret"
	rdb := redis.NewClient(co)
	t.Cleanup(func() { rdb.Close() })
	l := newLimiter(t, rdb, hybrid.Options{MaxBackoff: 200 * time.Millisecond})
	wantAdmitted(t, l, "k", longTen, 3, 3)
	eventually(t, "booked", func() bool { return l.Stats().AckedUnits == 3 })
	for _, c := range []struct {
		deny, restore string
		reason        string
	}{
		{"-evalsha", "+evalsha", "noperm"},
		{"resetkeys", "~*", "noperm"},
		{"resetpass", ">secret", ""}, // open connections stay; nothing happens
	} {
		do("ACL", "SETUSER", "app", c.deny)
		if c.reason != "" {
			eventually(t, "degraded: "+c.reason, func() bool {
				s := l.State()
				return s.Mode == hybrid.Degraded && s.Reason == c.reason
			})
		}
		do("ACL", "SETUSER", "app", c.restore)
		eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
	}
	ctx, cancel := context.WithTimeout(bg, 5*time.Second)
	defer cancel()
	if err := l.Flush(ctx); err != nil {
		t.Error(err)
	}
}
