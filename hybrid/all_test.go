package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestTakeAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, hybrid.Options{})
		tenant := limit.Must(limit.SlidingWindow("tenant", 12, 24*time.Hour))
		ask := func(n *node, user string, units int64) limit.AllResult {
			return n.TakeAll(limit.Check{Key: "acme", Rule: tenant, N: units}, limit.Check{Key: user, Rule: longTen, N: units},
				limit.Check{Key: user, Rule: longFunnel, N: units})
		}
		for _, n := range nodes {
			ask(n, "a", 1)
			time.Sleep(time.Second)
		}
		for _, q := range []*limit.Rule{longTen, longFunnel} { // has it hear of the other
			nodes[0].Take("a", q, 0)
		}
		nodes[0].Take("acme", tenant, 0)
		time.Sleep(time.Second)
		if v := ask(nodes[0], "a", 8); !v.Allowed || v.By != 1 || v.Source != limit.SourceSynced || v.Remaining != 0 {
			t.Errorf("%+v", v)
		}
		time.Sleep(time.Second)
		nodes[1].Take("acme", tenant, 0) // has it ask
		nodes[1].Take("a", longTen, 0)
		nodes[1].Take("a", longFunnel, 0)
		time.Sleep(time.Second)
		if v := ask(nodes[1], "b", 3); v.Allowed || v.Rule != tenant || v.By != 0 || v.Remaining != 2 {
			t.Errorf("%+v", v)
		}
		if v := ask(nodes[1], "a", 1); v.Allowed || v.By != 1 && v.By != 2 {
			t.Errorf("%+v", v)
		}
		time.Sleep(time.Second)
		w.wantUsed("acme", tenant, 10)
		w.wantUsed("a", longTen, 10)
		w.wantUsed("b", longTen, 0)
		w.wantUsed("a", longFunnel, 10)
		for _, n := range nodes {
			conserved(t, n.Limiter, true)
		}
		before := nodes[0].Figures()
		for _, bad := range []limit.Check{{Key: "a", Rule: tenant, N: -1}, {Key: "a", N: 1}, {Key: "a", Rule: limit.Must(limit.SlidingLog("log", 5, time.Minute)), N: 1}} {
			if v := nodes[0].TakeAll(limit.Check{Key: "new", Rule: tenant, N: 1}, bad); v.Allowed || v.By != 1 || v.RetryAfter != limit.Never {
				t.Errorf("%+v: %+v", bad, v)
			}
			if v := (*hybrid.Limiter)(nil).TakeAll(bad); v.Allowed {
				t.Errorf("nil limiter: %+v", v)
			}
		}
		// Limits of one key need names of their own.
		short := limit.Must(limit.SlidingWindow("tenant", 12, time.Second))
		if v := nodes[0].TakeAll(limit.Check{Key: "acme", Rule: tenant}, limit.Check{Key: "acme", Rule: short}); v.Allowed || v.By != 1 {
			t.Errorf("two periods: %+v", v)
		}
		if v := new(hybrid.Limiter).TakeAll(limit.Check{Key: "a", Rule: tenant, N: 1}); v.Allowed {
			t.Errorf("zero limiter: %+v", v)
		}
		if v := nodes[0].TakeAll(); !v.Allowed || v.By != -1 {
			t.Errorf("no checks: %+v", v)
		}
		if s := nodes[0].Figures(); s.Invalid != before.Invalid+4 || s.Denied != before.Denied || s.AdmittedUnits != before.AdmittedUnits {
			t.Errorf("%+v, before %+v", s, before)
		}
	})
}

func TestDryRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		d := longTen.DryRun()
		for i := range 25 {
			if res := n.Take("k", d, 1); !res.Allowed || res.WouldRefuse != (i >= 10) || (res.RetryAfter > 0) != (i >= 10) {
				t.Fatalf("%d: %+v", i, res)
			}
		}
		if !n.Allow("k", d) || n.Allow("k", longTen) {
			t.Error("the rule itself refuses, and its dry run does not")
		}
		if granted, res := n.TakeAtMost("k", d, 3); granted != 3 || !res.WouldRefuse {
			t.Errorf("%d, %+v", granted, res)
		}
		if res := n.Peek("k", d); !res.Allowed || !res.WouldRefuse {
			t.Errorf("%+v", res)
		}
		if v := n.TakeAll(limit.Check{Key: "k", Rule: d, N: 1}, limit.Check{Key: "k", Rule: longFunnel, N: 1}); !v.Allowed || !v.WouldRefuse || v.By != 0 {
			t.Errorf("%+v", v)
		}
		if v := n.ReserveN("k", d, 2); !v.OK() || v.Delay() != 0 {
			t.Errorf("%+v", v)
		}
		if n.Allow("k", nil) || n.AllowN("k", d, -1) {
			t.Error("what cannot be asked was let pass")
		}
		flush(t, n.Limiter)
		w.wantTotal("k", longTen, 10)
		if s := n.Figures(); s.WouldRefuse != 19 || s.Denied.Total() != 1 || s.Invalid != 2 || s.AdmittedUnits != 11 {
			t.Errorf("%+v", s)
		}
		conserved(t, n.Limiter, true)
	})
}

// After Preload the first check of a key knows what other nodes have used.
func TestPreload(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.fleet(2, hybrid.Options{})
		var keys []string
		for i := range 2500 {
			keys = append(keys, fmt.Sprint("user ", i))
			nodes[0].AllowN(keys[i], longTen, int64(i%11))
		}
		flush(t, nodes[0].Limiter)
		before := nodes[1].Figures()
		if err := nodes[1].Preload(bg, keys, longTen); err != nil {
			t.Fatal(err)
		}
		s := nodes[1].Figures()
		if sent := s.KeysSynced - before.KeysSynced; sent < 2500 || sent > 2600 {
			t.Errorf("asked for %d keys", sent)
		}
		if sent := s.Batches - before.Batches; sent > 3*64+20 {
			t.Errorf("%d script calls", sent)
		}
		if s.AdmittedUnits != before.AdmittedUnits || s.Allowed != before.Allowed {
			t.Errorf("preloading has consumed something: %+v", s)
		}
		for i, k := range keys {
			if res := nodes[1].Take(k, longTen, 1); res.Source != limit.SourceSynced || res.Allowed != (i%11 < 10) {
				t.Fatalf("%s: %+v", k, res)
			}
		}
		before = nodes[1].Figures()
		if err := nodes[1].Preload(bg, []string{keys[0], keys[0]}, longTen); err != nil {
			t.Error(err)
		}

		for name, c := range map[string]struct{ err, want error }{
			"no keys":      {nodes[1].Preload(bg, nil, longTen), nil},
			"nil context":  {nodes[1].Preload(noContext, []string{"k"}, longTen), nil},
			"nil rule":     {nodes[1].Preload(bg, []string{"k"}, nil), limit.ErrNilRule},
			"a log":        {nodes[1].Preload(bg, []string{"k"}, limit.Must(limit.SlidingLog("log", 5, time.Minute))), limit.ErrUnsupported},
			"nil limiter":  {(*hybrid.Limiter)(nil).Preload(bg, []string{"k"}, longTen), limit.ErrClosed},
			"zero limiter": {new(hybrid.Limiter).Preload(bg, []string{"k"}, longTen), limit.ErrClosed},
		} {
			if !errors.Is(c.err, c.want) || (c.err == nil) != (c.want == nil) {
				t.Errorf("%s: %v, want %v", name, c.err, c.want)
			}
		}
		ended, cancel := context.WithCancel(bg)
		cancel()
		before = nodes[1].Figures()
		for range 20 { // it is not left to chance whether an ended context counts
			err, flush := nodes[1].Preload(ended, []string{"another"}, longTen), nodes[1].Flush(ended)
			if !errors.Is(err, context.Canceled) || !errors.Is(flush, context.Canceled) {
				t.Fatalf("ended: %v, %v", err, flush)
			}
		}
		time.Sleep(time.Second)
		if sent := nodes[1].Figures().KeysSynced - before.KeysSynced; sent >= 2500 {
			t.Errorf("calls whose context has ended asked for %d keys", sent)
		}
		nodes[1].net.down()
		var unavailable *hybrid.UnavailableError
		time.Sleep(5 * time.Second)
		if err := nodes[1].Preload(bg, []string{"one more"}, longTen); !errors.As(err, &unavailable) {
			t.Errorf("in an outage: %v", err)
		}
		nodes[1].net.up()
		time.Sleep(10 * time.Second)
		if err := nodes[0].Shutdown(bg); err != nil {
			t.Error(err)
		}
		if err := nodes[0].Preload(bg, []string{"k"}, longTen); !errors.Is(err, limit.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
	if err := newLimiter(t, nil, hybrid.Options{}).Preload(bg, []string{"k"}, longTen); err != nil {
		t.Errorf("without Redis: %v", err)
	}
}
