package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What others do to our keys in Redis, and what we leave there.

// The list of nodes is a key of another type.
//
// Fault 27: counting and booking go on with the nodes last heard of, there is
// no hot loop, and the list heals once it is removed.
func TestRealGarbageNodes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	o := hybrid.Options{Shards: 4, HeartbeatInterval: 50 * time.Millisecond, MaxBackoff: 200 * time.Millisecond}
	nodes := realFleet(t, srv.Addr(), 2, o)
	ks, err := redisstore.NewKeyspace("", o.Shards)
	if err != nil {
		t.Fatal(err)
	}
	var all books
	take := func(i int) {
		for _, l := range nodes {
			all.take(l, fmt.Sprint("key", i%20), 1)
		}
	}
	for i := range 20 {
		take(i)
	}
	for _, l := range nodes {
		flush(t, l)
	}
	if err := admin.Set(bg, ks.NodesKey(), "somebody's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	failed, begun := nodes[0].Stats().Failures, time.Now()
	eventually(t, "ten heartbeats have failed", func() bool {
		take(rand.IntN(20))
		return nodes[0].Stats().Failures >= failed+10
	})
	if least := 10 * 10 * time.Millisecond; time.Since(begun) < least {
		t.Errorf("10 heartbeats in %v: a hot loop", time.Since(begun))
	}
	for _, l := range nodes {
		if s := l.State(); s.Mode != hybrid.Synced || s.Nodes != 2 {
			t.Errorf("%v, want it synced, with 2 nodes", s)
		}
		settled(t, l)
	}
	if v := admin.Get(bg, ks.NodesKey()).Val(); v != "somebody's" {
		t.Errorf("somebody's key was overwritten: %q", v)
	}
	all.matchIn(t, admin, o.Shards)
	admin.Del(bg, ks.NodesKey())
	eventually(t, "both nodes are in the list again", func() bool { return admin.ZCard(bg, ks.NodesKey()).Val() == 2 })
	everyKeyExpires(t, admin)
}

// Redis evicts one counter, or somebody deletes it, while the nodes are asked
// for it; or a node's ledger alone.
//
// Fault 28: an exhausted key stays exhausted, and it is reported to Redis again.
func TestRealKeyEvicted(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	nodes := realFleet(t, srv.Addr(), 2, hybrid.Options{SyncInterval: 20 * time.Millisecond, HeartbeatInterval: 200 * time.Millisecond})
	rules := []*limit.Rule{longTen, longFunnel}
	more := 0
	ask := func() {
		for _, l := range nodes {
			for _, rule := range rules {
				more += admitted(l, "k", rule, 1)
			}
		}
	}
	for _, rule := range rules {
		wantAdmitted(t, nodes[0], "k", rule, 20, 10)
	}
	flush(t, nodes[0])
	eventually(t, "the other node knows", func() bool {
		ok := true
		for _, rule := range rules {
			ok = ok && nodes[1].Take("k", rule, 11).Source == limit.SourceSynced && nodes[1].Peek("k", rule).Remaining == 0
		}
		return ok
	})
	for _, what := range []string{"counters", "ledgers"} {
		rolledBack, losses := nodes[0].Stats().RolledBackKeys+nodes[1].Stats().RolledBackKeys, nodes[0].Stats().Losses
		var gone []string
		if what == "counters" {
			gone = []string{counterKey(longTen, "k"), counterKey(longFunnel, "k")}
		} else {
			gone = admin.Keys(bg, "hl:1:*:node:*").Val()
		}
		if n := admin.Unlink(bg, gone...).Val(); n != int64(len(gone)) || n == 0 {
			t.Fatalf("%d of %d %s were there", n, len(gone), what)
		}
		eventually(t, what+" are missed", func() bool {
			ask()
			if what == "ledgers" {
				return nodes[0].Stats().Losses > losses
			}
			return nodes[0].Stats().RolledBackKeys+nodes[1].Stats().RolledBackKeys >= rolledBack+2
		})
		eventually(t, what+" are restored", func() bool {
			ask()
			return totalIn(t, admin, counterKey(longTen, "k")) == 10 && usedIn(t, admin, "k", longFunnel) == 10 &&
				nodes[0].State().Mode == hybrid.Synced
		})
	}
	if more != 0 {
		t.Errorf("%d units were admitted beyond the limit", more)
	}
	everyKeyExpires(t, admin)
}

// Somebody takes the TTL away from every key.
//
// Fault 29: each gets one again with the next write.
func TestRealTTLsComeBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	l := realNode(t, srv.Addr(), quick)
	fixed := limit.Must(limit.FixedWindow("fixed", 100, 24*time.Hour))
	take := func() {
		for _, rule := range []*limit.Rule{hundred, longFunnel, fixed} {
			wantAdmitted(t, l, "k", rule, 1, 1)
		}
		flush(t, l)
	}
	take()
	keys := admin.Keys(bg, "*").Val()
	if len(keys) < 5 { // three counters, their ledgers, the nodes
		t.Fatalf("keys %q", keys)
	}
	for _, k := range keys {
		if !admin.Persist(bg, k).Val() && !strings.Contains(k, ":nodes:") { // a heartbeat may have been quicker
			t.Errorf("%s had no TTL", k)
		}
	}
	take()
	eventually(t, "every key has a TTL again", func() bool {
		for _, k := range keys {
			if admin.PTTL(bg, k).Val() <= 0 {
				return false
			}
		}
		return true
	})
	everyKeyExpires(t, admin)
}

// Another version of this library uses the same Redis, with what this one does
// not understand in keys of the same names but for the version.
//
// Fault 30: neither its keys nor its nodes are read or touched.
func TestRealOtherVersion(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	use := func(l *hybrid.Limiter) {
		t.Helper()
		for _, rule := range []*limit.Rule{longTen, longFunnel} {
			wantAdmitted(t, l, "k", rule, 20, 10)
		}
		flush(t, l)
	}
	first := realNode(t, srv.Addr(), hybrid.Options{})
	use(first)
	theirs := map[string]string{}
	for i, k := range admin.Keys(bg, "hl:1:*").Val() {
		k = strings.Replace(k, ":1:{", ":2:{", 1)
		if i%2 == 0 {
			admin.RPush(bg, k, "a", "b")
		} else {
			admin.Set(bg, k, "version 2", 0)
		}
		theirs[k] = admin.Dump(bg, k).Val()
	}
	if err := first.Shutdown(bg); err != nil {
		t.Fatal(err)
	}
	if err := admin.Del(bg, counterKey(longTen, "k"), counterKey(longFunnel, "k")).Err(); err != nil {
		t.Fatal(err)
	}
	second := realNode(t, srv.Addr(), hybrid.Options{})
	use(second)
	if err := second.Shutdown(bg); err != nil {
		t.Fatal(err)
	}
	if len(theirs) < 4 {
		t.Errorf("only %d keys of the other version", len(theirs))
	}
	for k, v := range theirs {
		if admin.Dump(bg, k).Val() != v || admin.PTTL(bg, k).Val() != -1 {
			t.Errorf("%s was touched", k)
		}
	}
	for _, k := range admin.Keys(bg, "*").Val() {
		if _, ok := theirs[k]; !ok && !strings.HasPrefix(k, "hl:1:{") && k != "hl:{0}:layouts" {
			t.Errorf("a key without its version: %s", k)
		}
	}
}

// Ever new keys, whose units soon count no more.
//
// Fault 40: heap, goroutines and Redis stay flat, and Redis empties by itself.
func TestRealRandomKeys(t *testing.T) {
	srv := redistest.Start(t)
	admin := dial(t, srv.Addr())
	l := realNode(t, srv.Addr(), hybrid.Options{MaxKeys: 2000, SyncInterval: 10 * time.Millisecond})
	rules := []*limit.Rule{limit.Must(limit.SlidingWindow("s", 10, 100*time.Millisecond)), limit.Must(limit.Funnel("f", 10, 10, 100*time.Millisecond))}
	rng := rand.New(rand.NewPCG(40, 1))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	flood := func(n int) (mem uint64, keys int64) {
		for range n {
			for range 10 {
				l.Allow(fmt.Sprint("key", rng.Int64()), rules[rng.IntN(2)])
			}
			<-tick.C
		}
		keys = admin.DBSize(bg).Val()
		return heap(), keys
	}
	warm, _ := flood(500)
	goroutines := runtime.NumGoroutine()
	after, keys := flood(2500)
	everyKeyExpires(t, admin)
	if after > warm+4<<20 { // 25,000 counters would be some 8 MB
		t.Errorf("heap of %d KB after 5,000 keys, %d KB after 30,000", warm>>10, after>>10)
	}
	if n := runtime.NumGoroutine(); n > goroutines+10 {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if s := l.Stats(); s.LiveCounters > 10_000 || keys > 30_000 || s.Failures > s.Batches/10 {
		t.Errorf("%d keys in Redis: %+v", keys, s)
	}
	eventually(t, "only ledgers and the nodes are left", func() bool { return admin.DBSize(bg).Val() <= 65 })
	conserved(t, l, false)
}

// widest is a hook of go-redis that watches how many keys a call carries.
type widest struct {
	ops chan int // the most operations of one call so far
}

func (widest) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (widest) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (w widest) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			if args := c.Args(); strings.HasPrefix(fmt.Sprint(args[0]), "eval") {
				keys, _ := args[2].(int)
				w.ops <- max(<-w.ops, keys-1) // the first is the ledger
			}
		}
		return next(ctx, cmds)
	}
}

// More keys than one script call may carry, in few shards: they are reported in
// several calls, and all of them are, also when Redis has lost them.
//
// Faults 26, 56: no call carries more than MaxBatch keys, so that ours are not
// the scripts that keep Redis busy.
func TestRealManyKeys(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const keys, most = 10_000, 200
	watch := widest{make(chan int, 1)}
	watch.ops <- 0
	rdb := dial(t, srv.Addr())
	rdb.AddHook(watch)
	l := newLimiter(t, rdb, hybrid.Options{Shards: 4, CommandTimeout: 5 * time.Second, MaxBatch: most})
	eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
	for i := range keys {
		l.AllowN(fmt.Sprint("key", i), longWindow, 2)
	}
	flush(t, l)
	s := l.Stats()
	if s.AckedUnits != 2*keys || s.KeysSynced < keys || s.Batches < keys/most {
		t.Errorf("%+v", s)
	}
	admin := dial(t, srv.Addr())
	count := func() (n int) { return len(admin.Keys(bg, "hl:1:*:k:*").Val()) }
	if n := count(); n != keys {
		t.Errorf("%d keys in Redis, want %d", n, keys)
	}
	if err := admin.FlushAll(bg).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all of them restored", func() bool { return count() == keys })
	if got := <-watch.ops; got != most {
		t.Errorf("at most %d keys in one call, want %d", got, most)
	}
	watch.ops <- 0 // the limiter goes on
}
