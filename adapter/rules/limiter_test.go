package rules

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// reloaded writes a file and loads it.
func reloaded(t *testing.T, f *File, text string) {
	t.Helper()
	replace(t, f.path, text)
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
}

// used takes what is left of a key, and returns how much that was.
func used(t *testing.T, lim *hybrid.Limiter, key string, rule *limit.Rule) int64 {
	t.Helper()
	n, _ := lim.TakeAtMost(key, rule, 1<<40)
	return n
}

// What keys have used stays when the numbers change, on limiters that share it through Redis.
func TestUsageIsKept(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	text := func(calls, rate int, per, plan string) string {
		return fmt.Sprintf(`rules:
  calls: {algorithm: sliding-window, limit: %d, per: %s}
  tokens: {algorithm: token-bucket, limit: %d, per: 1h, burst: 100}
plans:
  pro: {calls: {limit: 50}}
overrides:
  - {key: acme%s}
`, calls, per, rate, plan)
	}
	f, _ := opened(t, temp(t, text(10, 10, "1h", ", rules: {}")), Options{AllowRemoval: true})
	a, b := h.Limiters[0], h.Limiters[1]
	calls := func(key string) *limit.Rule { return f.Set().For("calls", key) }
	for _, key := range []string{"acme", "other"} {
		if n := used(t, a, key, calls(key)); n != 10 {
			t.Fatalf("%d of 10", n)
		}
	}
	used(t, a, "acme", f.Set().For("tokens", "acme"))
	h.Sync()

	reloaded(t, f, text(25, 10, "1h", ", rules: {}")) // raised: what is left is the difference
	h.Preload([]string{"other"}, calls("other"))
	if n := used(t, b, "other", calls("other")); n != 15 {
		t.Errorf("raised from 10 to 25, of which 10 were used: %d are left", n)
	}
	h.Sync()
	reloaded(t, f, text(5, 10, "1h", ", plan: pro")) // lowered below what is used, but for one
	if a.Allow("other", calls("other")) || b.Allow("other", calls("other")) {
		t.Error("lowered to 5, of which 25 were used: admitted")
	}
	if n := used(t, a, "acme", calls("acme")); n != 40 {
		t.Errorf("a plan of 50, of which 10 were used: %d are left", n)
	}
	h.Sync()
	reloaded(t, f, text(30, 10, "2h", ", plan: pro")) // another period
	h.Preload([]string{"other"}, calls("other"))
	if n := used(t, b, "other", calls("other")); n > 5 {
		t.Errorf("30 in twice the time, of which 25 were used: %d are left", n)
	}
	reloaded(t, f, text(30, 20, "2h", ", plan: pro")) // another rate
	if n := used(t, a, "acme", f.Set().For("tokens", "acme")); n != 0 {
		t.Errorf("another rate: %d tokens of an empty bucket", n)
	}
	reloaded(t, f, text(30, 20, "2h", ", blocked: true"))
	if a.Allow("acme", calls("acme")) || !a.Allow("new", calls("new")) {
		t.Error("blocked")
	}
	for _, lim := range h.Limiters {
		if s := lim.Stats(); s.Invalid != 0 {
			t.Errorf("invalid checks: %+v", s)
		}
	}
}

// A running limiter goes on as before while its file is bad.
//
// Fault 64: a bad file neither stops nor loosens a limiter.
func TestLimiterGoesOn(t *testing.T) {
	path := temp(t, one(5))
	f := watched(t, path, Options{})
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Shutdown(t.Context())
	admitted := 0
	take := func() {
		for range 20 {
			if lim.Allow("k", f.Set().For("api", "k")) {
				admitted++
			}
		}
	}
	take()
	for i, bad := range []string{"", "rules: {}\n", one(500) + "foo: 1\n", one(500)[:30], "rules:\n  other: {algorithm: gcra, limit: 5, per: 1s}\n"} {
		write(t, path, bad)
		eventually(t, "the file is refused", func() bool { return f.Stats().Failures > uint64(i) })
		take()
	}
	if admitted != 5 {
		t.Errorf("%d of 5 were admitted", admitted)
	}
	if r := f.Set().Rule("api"); r.Limit() != 5 || r.Period() != time.Hour {
		t.Errorf("%v", r)
	}
}
