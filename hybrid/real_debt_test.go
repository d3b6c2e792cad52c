package hybrid_test

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Two nodes, one after the other, admit far more in an outage than Redis can count: it has
// 2^53 µs for a level. Redis books as much as MaxDebt says, the second time a
// unit at the most, and nothing else counts as booked.
func TestRealDebtOfCenturies(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tc := range []struct {
		rule  *limit.Rule
		takes int
		want  int64
	}{
		{limit.Must(limit.TokenBucket("a thousand a month", 1000, 30*day, 1000)), 5000, 2000},
		{limit.Must(limit.TokenBucket("one in ten years", 1, 3650*day, 10)), 100, 10},
	} {
		t.Run(tc.rule.Name(), func(t *testing.T) {
			t.Parallel()
			srv, p := proxied(t)
			o := quick
			o.Fallback = hybrid.FailOpen
			for i := range 2 {
				l := realNode(t, p.Addr(), o)
				p.Refuse(true)
				p.Cut()
				eventually(t, "degraded", func() bool { return l.State().Mode == hybrid.Degraded })
				for range tc.takes {
					if !l.Take("k", tc.rule, tc.rule.Limit()).Allowed || !l.Allow("k", tc.rule) {
						t.Fatal("refused")
					}
				}
				p.Refuse(false)
				settled(t, l)
				want := tc.want * int64(1-i)
				s := l.Figures()
				if s.BookedUnits < want || s.BookedUnits > want+1 || s.BookedUnits+s.ForgivenUnits != s.AdmittedUnits || s.Losses+s.RolledBackKeys > 0 {
					t.Errorf("node %d: want %d booked: %+v", i, want, s)
				}
				if got := usedIn(t, dial(t, srv.Addr()), "k", tc.rule); got != tc.rule.Limit() {
					t.Errorf("Redis counts %d", got)
				}
			}
		})
	}
}
