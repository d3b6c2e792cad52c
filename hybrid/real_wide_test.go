package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// 200 windows with units in 1,000 buckets each would take Redis longer than the default
// time-out, if they were reported at once: they are reported in calls of a few.
//
// Fault 75: a batch takes Redis longer than the time-out.
func TestRealWideWindows(t *testing.T) {
	srv := redistest.Start(t)
	const keys, buckets, span = 200, 1000, 100_000 * time.Second
	rule := limit.Must(limit.SlidingWindowBuckets("wide", 1_000_000, span, buckets))
	fillWindows(t, srv, rule, keys)
	// Longer than by default, for machines that do other work.
	fleet := realFleet(t, srv.Addr(), 2, hybrid.Options{CommandTimeout: 2 * time.Second})
	for i := range 2 * keys {
		fleet[i%2].Allow(fmt.Sprint("key", i/2), rule)
	}
	for _, l := range fleet {
		flush(t, l)
		s := l.Stats()
		if s.Failures > 0 || s.StateChanges > 1 || s.AckedUnits != keys {
			t.Errorf("%v", s)
		}
		if s.KeysSynced > 10*s.Batches {
			t.Errorf("%d keys in %d script calls: a call takes Redis longer than 10 ms", s.KeysSynced, s.Batches)
		}
		conserved(t, l, true)
	}
	if got, want := fleet[0].Peek("key7", rule).Remaining, int64(1_000_000-buckets-2); got > want+2 || got < want {
		// One more if the other node has reported last, and one if the oldest bucket has expired.
		t.Errorf("%d units of key7 remain, want %d or up to two more", got, want)
	}
}

// fillWindows books a unit in each bucket that counts.
func fillWindows(t *testing.T, srv *redistest.Server, rule *limit.Rule, keys int) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: time.Minute})
	defer rdb.Close()
	store, err := redisstore.NewStore(rdb, redisstore.Options{Shards: 1, CommandTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	now, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	var list []report.Bucket
	for age := range int64(arith.Of(rule).Kept) {
		list = append(list, report.Bucket{ID: now.UnixNano()/int64(arith.Of(rule).Width) - int64(arith.Of(rule).Kept) + 1 + age, Units: 1})
	}
	for seq := range int64(keys / 10) {
		b := &redisstore.Batch{Node: "filler", Seq: seq + 1, Prev: seq}
		for i := range int64(10) {
			b.Ops = append(b.Ops, report.Report{
				Key: store.Keyspace().CounterKey(rule, fmt.Sprint("key", 10*seq+i)), Rule: rule, Units: int64(len(list)), Buckets: list,
			})
		}
		if out, _ := store.Exec(context.Background(), []*redisstore.Batch{b}, nil); out[0].Err != nil || out[0].Reply.Verdict != redisstore.VerdictApplied {
			t.Fatalf("%+v", out[0])
		}
	}
}
