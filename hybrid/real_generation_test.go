package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Resets and losses of data: which view is of which time.

var generationRules = []*limit.Rule{
	limit.Must(limit.TokenBucket("generations", 1, time.Hour, 100)),
	limit.Must(limit.SlidingWindow("generations", 100, 24*time.Hour)),
}

// wantUsed waits until Redis counts so many units of a key, and some nodes know it.
func wantUsed(t testing.TB, rdb redis.UniversalClient, key string, rule *limit.Rule, want int64, nodes ...*hybrid.Limiter) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v: %d used", rule, want), func() bool {
		for _, l := range nodes {
			if l.Peek(key, rule).Remaining != rule.Limit()-want {
				_ = l.Preload(bg, []string{key}, rule) // asks if the view is old
				return false
			}
		}
		return usedIn(t, rdb, key, rule) == want
	})
}

func flushAll(t testing.TB, rdb *redis.Client) {
	t.Helper()
	if err := rdb.FlushAll(bg).Err(); err != nil {
		t.Fatal(err)
	}
}

// A node that knows of a reset is cut off, Redis loses everything, and another node,
// which has never heard of the reset, fills the key. What the first one knows when it
// returns is of a later generation, but does not replace what was booked since.
//
// Fault 73: what others have booked stays.
func TestRealResetReturnsAfterALoss(t *testing.T) {
	t.Parallel()
	for _, rule := range generationRules {
		t.Run(arith.Of(rule).Algorithm.String(), func(t *testing.T) {
			t.Parallel()
			srv, p := proxied(t)
			admin := dial(t, srv.Addr())
			a, b := realNode(t, p.Addr(), quick), realNode(t, srv.Addr(), quick)
			if err := a.Reset(bg, "k", rule); err != nil {
				t.Fatal(err)
			}
			wantAdmitted(t, a, "k", rule, 9, 9)
			flush(t, a)
			p.Refuse(true)
			flushAll(t, admin)
			wantAdmitted(t, b, "k", rule, 90, 90)
			flush(t, b)
			wantUsed(t, admin, "k", rule, 90)
			p.Refuse(false)
			eventually(t, "the loss is noticed", func() bool { return a.Figures().Losses > 0 })
			settled(t, a)
			wantUsed(t, admin, "k", rule, 90, a, b)
			if got := admitted(b, "k", rule, 100); got != 10 {
				t.Errorf("%d more admitted, want 10", got)
			}
		})
	}
}
