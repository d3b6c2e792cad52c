package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// A reservation is cancelled when it is due, with as much booked behind it: by the
// same node, by another one that this node has not heard of, or by another process
// without views. Newcomers get nothing of what those behind will use.
//
// Fault 79: a reservation cancelled when due with others behind it.
func TestRealCancelWhenDue(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := dial(t, srv.Addr())
	unavailable, err := remote.New(rdb, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The nodes exchange what the test has them flush, and nothing else.
	nodes := realFleet(t, srv.Addr(), 2, hybrid.Options{SyncInterval: time.Second, HeartbeatInterval: 200 * time.Millisecond, CommandTimeout: 5 * time.Second})
	rule := limit.Must(limit.Funnel("f", 100, 100, time.Second))
	look := func(l *hybrid.Limiter, key string) {
		if err := l.Preload(bg, []string{key}, rule); err != nil {
			t.Fatal(err)
		}
	}
	for name, behind := range map[string]func(key string) time.Duration{
		"the same node": func(key string) time.Duration { return nodes[0].ReserveN(key, rule, 100).Delay() },
		"another node": func(key string) time.Duration {
			look(nodes[1], key)
			d := nodes[1].ReserveN(key, rule, 100).Delay()
			flush(t, nodes[1])
			return d
		},
		"another process": func(key string) time.Duration {
			r, err := unavailable.ReserveN(bg, key, rule, 100)
			if err != nil {
				t.Fatal(err)
			}
			return r.Delay()
		},
	} {
		nodes[0].AllowN(name, rule, 100)
		first := nodes[0].ReserveN(name, rule, 100)
		due := time.Now().Add(first.Delay())
		flush(t, nodes[0])
		asked := time.Now()
		second := behind(name)
		misread := time.Since(asked)
		due2 := asked.Add(second)
		if second < first.Delay() {
			t.Fatalf("%s: %v, then %v", name, first.Delay(), second)
		}
		eventually(t, "the first is due", func() bool { return !time.Now().Before(due) })
		first.Cancel()
		flush(t, nodes[0])
		eventually(t, "the second is due", func() bool { return !time.Now().Before(due2) })
		got, looked := int64(0), time.Now()
		for _, l := range nodes {
			look(l, name)
			n, _ := l.TakeAtMost(name, rule, 100)
			got += n
			flush(t, l)
		}
		// What has leaked since the second is due is free. A node takes an answer for one of
		// the middle of its exchange, so that it misreads a level by no more than that took.
		misread += time.Since(looked)
		if most := int64((time.Since(due2)+misread)/(10*time.Millisecond)) + 1; got > most {
			t.Errorf("%s behind: %d of 100 admitted beside 100 that are due, want at most %d", name, got, most)
		}
	}
}
