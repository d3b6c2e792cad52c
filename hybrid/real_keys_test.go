package hybrid_test

import (
	"context"
	"fmt"
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
// Faults 26, 56: no call carries more than a thousand keys, so that ours are not
// the scripts that keep Redis busy.
func TestRealManyKeys(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	const keys, most = 10_000, redisstore.MaxOps
	watch := widest{make(chan int, 1)}
	watch.ops <- 0
	rdb := dial(t, srv.Addr())
	rdb.AddHook(watch)
	l := newLimiter(t, rdb, hybrid.Options{Shards: 4, CommandTimeout: 5 * time.Second})
	eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
	for i := range keys {
		l.AllowN(fmt.Sprint("key", i), longWindow, 2)
	}
	flush(t, l)
	s := l.Figures()
	if s.BookedUnits != 2*keys || s.KeysSynced < keys || s.Batches < keys/most {
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
	if got := <-watch.ops; got > most {
		t.Errorf("%d keys in one call, want %d at most", got, most)
	}
	watch.ops <- 0 // the limiter goes on
}
