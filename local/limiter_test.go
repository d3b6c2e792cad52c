package local

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestNewRejectsBadOptions(t *testing.T) {
	for _, n := range []int{-1, math.MinInt, 1<<26 + 1} {
		l, err := New(Options{MaxKeys: n})
		if err == nil || l != nil || !strings.HasPrefix(err.Error(), "local: MaxKeys") {
			t.Errorf("MaxKeys %d: %v", n, err)
		}
	}
}

func everyRule(tb testing.TB, lim int64) []*limit.Rule {
	tb.Helper()
	return []*limit.Rule{
		limit.Must(limit.TokenBucket("r", 1, time.Hour, lim)),
		limit.Must(limit.SlidingWindow("r", lim, time.Hour)),
		limit.Must(limit.SlidingWindowBuckets("r1", lim, time.Hour, 1)),
		limit.Must(limit.FixedWindow("r", lim, time.Hour)),
		limit.Must(limit.SlidingLog("r", lim, time.Hour)),
		limit.Must(limit.Quota("r", lim, limit.Calendar{Unit: limit.Day})),
	}
}

// Questions that cannot be asked: refused for ever, counted, and without effect.
//
// Fault 42: a negative number is refused, counted and without effect.
func TestInvalidQuestions(t *testing.T) {
	var zero Limiter
	for name, l := range map[string]*Limiter{"new": newLimiter(t, Options{}), "zero": &zero} {
		asked := int64(0)
		rules := append(everyRule(t, 5), nil, new(limit.Rule))
		for _, rule := range rules {
			ns := []int64{-1, math.MinInt64, -5}
			if !rule.Valid() {
				ns = append(ns, 0, 1, math.MaxInt64)
			}
			for _, n := range ns {
				asked += 2
				if got, want := l.Take("k", rule, n), decision.Invalid(rule); got != want {
					t.Errorf("%s: Take(%v, %d) = %+v, want %+v", name, rule, n, got, want)
				}
				if l.AllowN("k", rule, n) {
					t.Errorf("%s: AllowN(%v, %d) = true", name, rule, n)
				}
			}
			if name == "zero" || !rule.Valid() {
				asked += 2
				if res := l.Peek("k", rule); res.Allowed || res.RetryAfter != limit.Never {
					t.Errorf("%s: Peek(%v) = %+v", name, rule, res)
				}
				if l.Allow("k", rule) {
					t.Errorf("%s: Allow(%v) = true", name, rule)
				}
				continue
			}
			if res := l.Peek("k", rule); res.Remaining != 5 {
				t.Errorf("%s: a negative n changed %v: %+v", name, rule, res)
			}
		}
		if got := l.Stats().Invalid; got != asked {
			t.Errorf("%s: Invalid = %d, want %d", name, got, asked)
		}
		l.Close()
	}
}

// Without a number there is room for as many keys as the doc says.
func TestDefaultMaxKeys(t *testing.T) {
	if room := newLimiter(t, Options{}).table.Stats().Room; room != 65_536*5/4 {
		t.Errorf("room for %d keys", room)
	}
}
