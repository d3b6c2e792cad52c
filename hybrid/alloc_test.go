//go:build !race

package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The race detector allocates by itself, so these pins are for builds
// without it.

// free checks that the verbs allocate nothing on a key that is in memory,
// whatever they answer.
func free(t *testing.T, l *hybrid.Limiter, rule *limit.Rule) {
	t.Helper()
	dry := rule.DryRun()
	for name, f := range map[string]func(){
		"Allow":      func() { l.Allow("k", rule) },
		"AllowN":     func() { l.AllowN("k", rule, 2) },
		"Take":       func() { l.Take("k", rule, 1) },
		"Peek":       func() { l.Peek("k", rule) },
		"TakeAtMost": func() { l.TakeAtMost("k", rule, 3) },
		"Refund":     func() { l.Refund("k", rule, 1) },
		"combined":   func() { l.Allow("k", several) },
		"combined 2": func() { l.Take("k", several, 1) },
		"Charge":     func() { l.Charge("k", rule, 1) },
		"dry run":    func() { l.Take("k", dry, 1) },
		"TakeAll": func() {
			l.TakeAll(limit.Check{Key: "k", Rule: rule, N: 1}, limit.Check{Key: "k", Rule: longWindow, N: 2},
				limit.Check{Key: "k", Rule: rule, N: 1}, limit.Check{Key: "k", Rule: longFunnel})
		},
	} {
		if n := allocations(0, f); n != 0 {
			t.Errorf("%s of %v: %v allocations, %v", name, rule, n, l.State())
		}
	}
	// What was booked, what remembers that it was canceled, and how to do it.
	if n := allocations(3, func() { l.Reserve("k", rule).Cancel(bg) }); n > 3 {
		t.Errorf("Reserve of %v: %v allocations", rule, n)
	}
}

// allocations returns how many allocations f makes, the fewest of five counts if they are more than
// most: on a busy machine the test is interrupted, and the reconciler runs meanwhile.
func allocations(most float64, f func()) float64 {
	fewest := testing.AllocsPerRun(200, f)
	for range 4 {
		if fewest > most {
			fewest = min(fewest, testing.AllocsPerRun(200, f))
		}
	}
	return fewest
}

// allocRules admit all of it, or nearly nothing.
var allocRules = []*limit.Rule{
	longWindow, longTen, longFunnel,
	limit.Must(limit.TokenBucket("wide", 1_000_000, time.Hour, 1_000_000)),
	limit.Must(limit.FixedWindow("fixed", 1_000_000, time.Hour)),
	limit.Must(limit.Quota("quota", 1_000_000, limit.Calendar{Unit: limit.Month})),
	limit.Must(limit.SlidingWindowBuckets("fine", 1_000_000, time.Hour, 60)),
}

// In a bubble nothing else runs between two blocking points of the test, so
// that the allocations counted are those of the checks, as long as the
// reconciler is not woken: the interval is long, and it has nothing urgent.
func TestNoAllocations(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{SyncInterval: time.Minute})
		ask := func() {
			for _, rule := range allocRules {
				n.AllowN("k", rule, rule.Limit()/2) // the urgent reports of the small rules
				time.Sleep(50 * time.Millisecond)
				n.AllowN("k", rule, rule.Limit()/2-1)
				time.Sleep(50 * time.Millisecond)
				n.Allow("k", rule)
				time.Sleep(time.Second)
				free(t, n.Limiter, rule)
			}
		}
		wantMode(t, n.Limiter, hybrid.Synced)
		ask()
		n.net.down()
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		ask()
	})
	l := newLimiter(t, nil, hybrid.Options{})
	for _, rule := range allocRules {
		admitted(l, "k", rule, 20)
		eventually(t, "resident", func() bool {
			return testing.AllocsPerRun(10, func() { l.Allow("k", rule) }) == 0
		})
		free(t, l, rule)
	}
}

// A refusal by TakeExact allocates nothing: an attacker does not make the service work for it.
func TestExactRefusalAllocatesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{SyncInterval: time.Minute})
		for range 10 {
			exact(t, n.Limiter, "k", longTen)
			exact(t, n.Limiter, "k", several)
			time.Sleep(time.Millisecond)
		}
		for name, f := range map[string]func() (limit.AllResult, error){
			"used up":  func() (limit.AllResult, error) { return n.TakeExact(bg, limit.Check{Key: "k", Rule: longTen}) },
			"combined": func() (limit.AllResult, error) { return n.TakeExact(bg, limit.Check{Key: "k", Rule: several}) },
			"too many": func() (limit.AllResult, error) { return n.TakeExact(bg, limit.Check{Key: "k", Rule: longTen, N: 11}) },
		} {
			if res, err := f(); res.Allowed || err != nil {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
			if got := allocations(0, func() { _, _ = f() }); got != 0 {
				t.Errorf("%s: %v allocations", name, got)
			}
		}
	})
}
