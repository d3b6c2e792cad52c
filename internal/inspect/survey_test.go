package inspect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// scanned returns the keys that a scan finds.
func scanned(t *testing.T, s *Survey, most int64) (keys map[string]int, out Scanned) {
	t.Helper()
	keys = map[string]int{}
	out, err := s.Scan(ctx, most, func(names []Name) error {
		for _, n := range names {
			keys[n.Key]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys, out
}

// A scan finds every counter once, and nothing else; it is bounded, and writes nothing.
func TestScan(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, s := b.l, b.s
		if keys, out := scanned(t, s, 10); len(keys) != 0 || !out.Complete || out.Total != 0 {
			t.Errorf("of nothing: %v, %+v", keys, out)
		}
		for i := range 40 {
			for _, rule := range oneOfEach(t, "api") {
				if err := l.Set(ctx, fmt.Sprint(i), rule, 1); err != nil {
					t.Fatal(err)
				}
			}
			b.set(fmt.Sprintf("hl:1:{%d}:f:3:api:k:elsewhere", 1000+i), "x")
			b.set(fmt.Sprint("somebody's ", i), "x")
		}
		if out, _ := s.Exec(ctx, []*redisstore.Batch{{Node: "n1", Seq: 1}}, nil); out[0].Err != nil {
			t.Fatal(out[0].Err)
		}
		before := b.dump()
		keys, out := scanned(t, s, 1<<40)
		if len(keys) != 40 || !out.Complete || out.Counters != 200 || out.Foreign != 40 || out.Total != 281 || out.Keys != out.Total {
			t.Errorf("%d keys, %+v", len(keys), out)
		}
		for key, n := range keys {
			if n != 5 {
				t.Errorf("%q was found %d times", key, n)
			}
		}
		if b.dump() != before {
			t.Error("a scan has written something")
		}
		stop := errors.New("stop")
		if _, err := s.Scan(ctx, 1000, func([]Name) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("stopped: %v", err)
		}
	})
}

func TestScanIsBounded(t *testing.T) {
	b := onReal(t)
	s := b.s
	pipe := b.rdb.Pipeline()
	for i := range 20 * scanCount {
		pipe.Set(ctx, fmt.Sprint("somebody's ", i), "", 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	_, out := scanned(t, s, 3*scanCount)
	if out.Complete || out.Keys != 3*scanCount || out.Total != 20*scanCount {
		t.Errorf("%+v", out)
	}
	b.rdb.ConfigResetStat(ctx)
	scanned(t, s, 3*scanCount)
	stats := b.rdb.Info(ctx, "commandstats").Val()
	if !strings.Contains(stats, "cmdstat_scan:calls=3,") || strings.Contains(stats, "cmdstat_keys:") {
		t.Errorf("not 3 SCANs: %s", stats)
	}
}

// All masters of a Cluster are looked at.
func TestScanCluster(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t).Addrs(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	l, s := of(t, rdb)
	for i := range 100 {
		if err := l.Set(ctx, fmt.Sprint(i), oneOfEach(t, "api")[0], 5); err != nil {
			t.Fatal(err)
		}
	}
	keys, out := scanned(t, s, 1<<40)
	if len(keys) != 100 || !out.Complete || out.Total != 100 {
		t.Errorf("%d keys, %+v", len(keys), out)
	}
}

// Each answer is that of Peek; what cannot be used is said of each key alone.
func TestPeekMany(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l, s := b.l, b.s
		var looks []Look
		for i := range surveyCalls + 3 {
			for _, rule := range oneOfEach(t, "api") {
				key := fmt.Sprint(i)
				text := s.Keyspace().CounterKey(rule, key)
				if i == 7 {
					b.set(text, "garbage")
				} else if err := l.Set(ctx, key, rule, int64(i)); err != nil {
					t.Fatal(err)
				}
				name, _ := Parse(s.Keyspace(), text)
				looks = append(looks, Look{name, rule})
			}
		}
		before := b.dump()
		seen := s.Peek(ctx, looks)
		if len(seen) != len(looks) {
			t.Fatalf("%d answers to %d looks", len(seen), len(looks))
		}
		for i, is := range seen {
			_, err := l.Peek(ctx, looks[i].Name.Key, looks[i].Rule)
			var key *limit.KeyError
			if looks[i].Name.Key == "7" {
				if !errors.As(is.Err, &key) || err == nil || is.Err.Error() != err.Error() {
					t.Errorf("a broken key: %v; %v", is.Err, err)
				}
			} else if is.Err != nil || err != nil || is.Result.Limit != 1000 {
				t.Errorf("%v: %+v; %v", looks[i].Name, is, err)
			}
		}
		if b.dump() != before {
			t.Error("to look has written something")
		}
	})
}

// What is used counts above the limit, too. What is used and what remains are the limit together, at any time.
func TestUsedIsTheRest(t *testing.T) {
	b := onMini(t)
	l, s := b.l, b.s
	var looks []Look
	for _, rule := range oneOfEach(t, "api") {
		name, _ := Parse(s.Keyspace(), s.Keyspace().CounterKey(rule, "k"))
		looks = append(looks, Look{name, rule})
		for _, used := range []int64{0, 1, 1000, 1500, 700} {
			if err := l.Set(ctx, "k", rule, used); err != nil {
				t.Fatal(err)
			}
			want := used
			if arith.Of(rule).Algorithm == arith.SlidingLog {
				want = min(used, rule.Limit())
			}
			seen := s.Peek(ctx, []Look{{name, rule}})[0]
			if seen.Err != nil || seen.Used != want || seen.Result.Remaining != max(1000-want, 0) || seen.Result.Allowed != (want < 1000) {
				t.Errorf("%v, %d used: %+v", rule, used, seen)
			}
		}
	}
	partly := 0 // looks at a window that has forgotten a part
	for i := range 100 {
		for i, seen := range s.Peek(ctx, looks) {
			if seen.Err != nil || seen.Used+seen.Result.Remaining != 1000 {
				t.Fatalf("%v: %+v", looks[i].Rule, seen)
			}
			if arith.Of(looks[i].Rule).Algorithm == arith.SlidingWindow && seen.Used > 0 && seen.Used < 700 {
				partly++
			}
		}
		b.mini.SetTime(time.Unix(1_760_000_000, 0).Add(time.Duration(i+1) * 40 * time.Second))
	}
	if partly == 0 {
		t.Error("no window has been seen that has forgotten a part")
	}
}
