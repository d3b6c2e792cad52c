package hybrid_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A part of a cluster falls silent, and no key was ever taken but exactly. Calls of keys on the other
// masters do not wait for it, and those of its keys are decided by the fallback once that is noticed.
//
// Fault 104: units are taken exactly while a master is silent.
func TestRealExactCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form")
	}
	t.Parallel()
	k := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	rdb := redis.NewClusterClient(hybrid.RedisClusterOptions(k.Addrs()...))
	t.Cleanup(func() { rdb.Close() })
	l := newLimiter(t, rdb, hybrid.Options{CommandTimeout: time.Second}) // a pipeline has four of them
	eventually(t, "synced", func() bool { return l.State().Mode == hybrid.Synced })
	rule, ctx := limit.Must(limit.FixedWindow("exact", 1_000_000, time.Hour)), t.Context()
	var healthy, silent []string
	for i := range 10 {
		silent = append(silent, atHome(t, k, rule, 0, i))
		healthy = append(healthy, atHome(t, k, rule, 1, i), atHome(t, k, rule, 2, i))
	}
	for _, key := range slices.Concat(healthy, silent) {
		exact(t, l, key, rule)
	}
	k.Replicas[0].FreezeOrSkip(t) // first, so that it does not take over
	k.Masters[0].FreezeOrSkip(t)
	t.Cleanup(func() { _, _ = k.Masters[0].Thaw(), k.Replicas[0].Thaw() })
	var all sync.WaitGroup
	var over atomic.Bool
	defer func() {
		over.Store(true)
		all.Wait()
	}()
	for _, key := range healthy {
		all.Go(func() {
			for !over.Load() {
				ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
				if res, err := l.TakeExact(ctx, limit.Check{Key: key, Rule: rule}); err != nil || res.Source != limit.SourceRemote {
					t.Errorf("a key of another master: %+v, %v", res, err)
				}
				cancel()
				<-time.After(20 * time.Millisecond)
			}
		})
	}
	for _, key := range silent {
		all.Go(func() {
			for !over.Load() {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				if res, err := l.TakeExact(ctx, limit.Check{Key: key, Rule: rule}); err == nil && res.Source == limit.SourceDegraded {
					over.Store(true)
				}
				cancel()
				<-time.After(20 * time.Millisecond)
			}
		})
	}
	eventually(t, "the outage is noticed", over.Load)
	over.Store(true)
	all.Wait()
	conserved(t, l, false)
}
