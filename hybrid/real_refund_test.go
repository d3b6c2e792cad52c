package hybrid_test

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// The same with the very first flight of a node: what it hands back was set, and so was
// not reported by any node. That Redis has no ledger says nothing then.
//
// Fault 72: 7 of 10 units count, not 4.
func TestRealRefundInTheFirstFlight(t *testing.T) {
	t.Parallel()
	for _, rule := range generationRules {
		t.Run(arith.Of(rule).Algorithm.String(), func(t *testing.T) {
			t.Parallel()
			srv, p := proxied(t)
			admin := dial(t, srv.Addr())
			b := realNode(t, srv.Addr(), quick)
			wantAdmitted(t, b, "other", rule, 1, 1)
			flush(t, b) // Redis knows the script, or its not knowing would be the reply that is lost
			slow := quick
			slow.SyncInterval = time.Minute // it reports nothing by itself
			var a *hybrid.Limiter
			// Once in some hundred times the minute is over between the refund and the cut.
			eventually(t, "a node that has reported nothing", func() bool {
				p.CutReplies(0)
				a = realNode(t, p.Addr(), slow)
				if err := a.Set(bg, "k", rule, 10); err != nil {
					t.Fatal(err)
				}
				if got := a.Refund("k", rule, 3); got != 3 {
					t.Fatalf("%d handed back", got)
				}
				p.CutReplies(1 << 20)
				return a.Figures().Batches == 0
			})
			cut, done := context.WithTimeout(bg, 20*time.Second)
			defer done()
			go a.Flush(cut) // gets no answer
			wantUsed(t, admin, "k", rule, 7, b)
			ledgers, err := admin.Keys(bg, "hl:1:*:node:"+a.ID()).Result()
			if err != nil || len(ledgers) == 0 {
				t.Fatal(ledgers, err)
			}
			if err := admin.Del(bg, ledgers...).Err(); err != nil {
				t.Fatal(err)
			}
			p.CutReplies(0)
			settled(t, a)
			flush(t, a)
			wantUsed(t, admin, "k", rule, 7, a, b)
			if got := a.Figures().RefundsGivenUp; got != 1 {
				t.Errorf("%d refunds given up, want 1", got)
			}
		})
	}
}
