package hybrid_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A key is explained by what is known here, what is not reported, and what Redis says, and to ask
// changes nothing.
func TestRealExplain(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := dial(t, srv.Addr())
	o := hybrid.Options{SyncInterval: 20 * time.Millisecond, MaxLag: time.Minute} // what is not urgent stays here
	a, b := realNode(t, srv.Addr(), o), realNode(t, srv.Addr(), o)
	explain := func(l *hybrid.Limiter, key string, rule *limit.Rule) inside.Explanation {
		t.Helper()
		list, err := l.Explained(bg, key, rule)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	if e := explain(a, "k", hundred); e.InMemory || !e.Result.Allowed || e.Redis == nil || e.Redis.Err != nil || e.Redis.Used != 0 || a.Figures().Keys != 0 {
		t.Errorf("a key that was never used: %+v", e)
	}
	b.AllowN("k", hundred, 60)
	flush(t, b)
	a.AllowN("k", hundred, 1)
	flush(t, a)
	a.AllowN("k", hundred, 5)
	for range 3 { // to ask is no use, whatever way it is done
		e := explain(a, "k", hundred)
		if !e.InMemory || !e.Result.Allowed || e.Result.Remaining != 34 || e.Known+e.Pending != 66 || e.Answered.IsZero() || e.Redis.Used != 61 && e.Redis.Used != 66 || e.Redis.Result.Remaining != 100-e.Redis.Used { // the 5 may be reported by now
			t.Errorf("%+v, %+v", e, e.Redis)
		}
		a.Nearest(10)
	}
	flush(t, a)
	ten := limit.Must(limit.SlidingWindow("hundred", 10, 24*time.Hour)) // of another plan
	if e := explain(a, "k", ten); e.Latest != hundred || e.Result.Allowed || explain(a, "k", ten).Latest != nil || !a.Peek("k", hundred).Allowed {
		t.Errorf("by another limit: %+v", e)
	}
	if e := explain(a, "k", hundred); e.Known != 66 || e.Pending != 0 || e.Redis.Used != 66 || e.Result.Remaining != 34 {
		t.Errorf("reported: %+v, %+v", e, e.Redis)
	}
	// Used up by the other node, which says so at once: a notice refuses it.
	a.AllowN("n", longTen, 1)
	flush(t, a)
	b.AllowN("n", longTen, 9)
	flush(t, b)
	eventually(t, "a notice", func() bool { return !a.Allow("n", longTen) })
	e := explain(a, "n", longTen)
	if e.Result.Allowed || e.Result.RetryAfter <= 0 || e.Redis.Used < 10 || e.Redis.Result.Allowed {
		t.Errorf("used up: %+v, %+v", e, e.Redis)
	}
	if e.Result.Source == limit.SourceNotice && (e.Notice.IsZero() || !e.NoticeUntil.After(e.Notice)) {
		t.Errorf("by a notice: %+v", e)
	}
	// Another program has written to the key.
	a.AllowN("broken", longTen, 1)
	flush(t, a)
	for _, key := range rdb.Keys(bg, "*broken").Val() {
		rdb.Del(bg, key)
		rdb.RPush(bg, key, "x")
	}
	flush(t, a)
	e = explain(a, "broken", longTen)
	var broken *limit.KeyError
	if !e.Quarantined || !errors.As(e.Redis.Err, &broken) {
		t.Errorf("broken: %+v, %v", e, e.Redis.Err)
	}
	srv.Kill()
	eventually(t, "degraded", func() bool { return a.State().Mode == hybrid.Degraded })
	e = explain(a, "k", hundred)
	var away *hybrid.UnavailableError
	if !errors.As(e.Redis.Err, &away) || e.Result.Source != limit.SourceDegraded || !e.InMemory {
		t.Errorf("degraded: %+v, %v", e, e.Redis.Err)
	}
	if e.Redis.Err == nil || a.Fallback() != hybrid.FairShare {
		t.Error(a.Fallback())
	}
	if _, err := a.Explained(bg, "k", limit.Must(limit.SlidingLog("log", 1, time.Second))); !errors.Is(err, limit.ErrUnsupported) {
		t.Errorf("a sliding log: %v", err)
	}
	if list, err := a.Explained(bg, "k"); err != nil || len(list) != 2 || !list[0].InMemory || list[1].InMemory || list[0].Rule != hundred {
		t.Errorf("under all rules: %+v, %v", list, err)
	}
	if _, err := a.Explained(bg, "k", nil); !errors.Is(err, limit.ErrNilRule) {
		t.Errorf("no rule: %v", err)
	}
}

// The keys with the least left come first; keys that have used nothing do not come at all. Neither
// list nor look changes what is decided.
func TestNearest(t *testing.T) {
	l, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dry := limit.Must(limit.TokenBucket("dry", 10, 24*time.Hour, 10)).DryRun()
	for i := range 300 {
		l.AllowN(fmt.Sprintf("k%03d", i), hundred, int64(i%100))
	}
	l.Peek("untouched", hundred)
	l.AllowN("over", longTen, 10)
	l.Allow("over", longTen)
	l.AllowN("dry", dry, 10)
	long := strings.Repeat("x", 1000)
	l.AllowN(long, longFunnel, 10)
	list := l.Nearest(5)
	if len(list) != 5 {
		t.Fatalf("%+v", list)
	}
	full := map[string]bool{}
	for _, e := range list[:3] {
		full[e.Rule.Name()] = true
		if e.Result.Remaining != 0 || !e.InMemory || e.Redis != nil || e.Result.Allowed != (e.Rule.Name() == "dry") || e.Rule.Name() == "slow" && len(e.Key) != 64 {
			t.Errorf("%+v", e)
		}
	}
	if len(full) != 3 || list[3].Result.Remaining != 1 || list[3].Key >= list[4].Key {
		t.Errorf("%+v", list)
	}
	if all := l.Nearest(10_000); len(all) != 300 { // three of them have used nothing
		t.Errorf("%d keys", len(all))
	}
	if n := len(l.Nearest(0)) + len(l.Nearest(-1)) + len((*hybrid.Limiter)(nil).Nearest(1)); n != 0 {
		t.Errorf("%d keys of none", n)
	}
	for i := range 300 {
		if left := l.Peek(fmt.Sprintf("k%03d", i), hundred).Remaining; left != int64(100-i%100) {
			t.Fatalf("key %d: %d left", i, left)
		}
	}
	names := []string{}
	for _, r := range l.Rules() {
		names = append(names, r.Name())
	}
	if fmt.Sprint(names) != "[dry hundred slow ten]" {
		t.Errorf("rules: %s", names)
	}
	if list, err := (*hybrid.Limiter)(nil).Explained(bg, "k", hundred); err != nil || list[0].Result.Allowed {
		t.Errorf("%+v, %v", list, err)
	}
}

// QuickFigures is Figures but for what needs a look at each key.
func TestQuickFigures(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.synced(hybrid.Options{MaxLag: time.Minute})
		l.Allow("k", hundred)
		flush(t, l.Limiter)
		for range 10 { // not enough to be urgent
			l.Allow("k", hundred)
		}
		l.Take("bad", nil, 1)
		synctest.Wait() // nothing is under way
		is, quick := l.Figures(), l.QuickFigures()
		if is.QueuedKeys == 0 || is.OldestPending == 0 {
			t.Errorf("%v", is)
		}
		is.QueuedKeys, is.OldestPending = 0, 0
		if !reflect.DeepEqual(is, quick) { // Stats has counted what leases have admitted
			t.Errorf("Stats: %v\nquick: %v", is, quick)
		}
	})
}

// In an outage a key is explained by this node's share, also if it was not asked since.
func TestExplainFollowsTheMode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.synced(hybrid.Options{ExpectedNodes: 4})
		l.AllowN("k", hundred, 20)
		flush(t, l.Limiter)
		l.net.down()
		time.Sleep(10 * time.Second)
		if m := l.State().Mode; m != hybrid.Degraded {
			t.Fatal(m)
		}
		list := l.Nearest(1)
		if len(list) != 1 || list[0].Result.Source != limit.SourceDegraded || list[0].Result.Remaining > 25 {
			t.Errorf("%+v", list)
		}
		if text, err := l.Explain(bg, "k", hundred); err != nil || !strings.Contains(text, "this node admits 1/4 of the limit by itself") {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// While Redis is known to be away, to explain a key does not wait for it.
func TestExplainWhileRedisIsFrozen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.synced(hybrid.Options{})
		l.Allow("k", hundred)
		l.net.set(func(n *network) { n.swallow = true })
		time.Sleep(10 * time.Second)
		began := time.Now()
		list, err := l.Explained(bg, "k")
		if took := time.Since(began); err != nil || len(list) != 1 || list[0].Redis.Err == nil || took > 0 {
			t.Errorf("%+v, %v after %v", list, err, took)
		}
		l.net.set(func(n *network) { n.swallow = false })
	})
}

// Keys that have used nothing are no keys with little left, also while less than the limit is left: in an
// outage the share of the node, or nothing.
func TestNearestInAnOutage(t *testing.T) {
	for _, fallback := range []hybrid.Fallback{hybrid.FairShare, hybrid.FullLimit, hybrid.FailOpen, hybrid.FailClosed} {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.synced(hybrid.Options{Fallback: fallback, ExpectedNodes: 2})
			n.Allow("used", longTen)
			for i := range 60 {
				n.Allow(fmt.Sprint("idle", i), longTen)
				n.Refund(fmt.Sprint("idle", i), longTen, 1) // such as a log-in that has succeeded
			}
			time.Sleep(2 * time.Second)
			for _, when := range []string{"synced", "away"} {
				if list := n.Nearest(50); len(list) != 1 || list[0].Key != "used" {
					t.Errorf("%v, %s: %d keys, first %v", fallback, when, len(list), list)
				}
				n.net.down()
				time.Sleep(10 * time.Second)
			}
		})
	}
}
