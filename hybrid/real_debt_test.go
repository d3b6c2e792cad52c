package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// One node of a fleet is cut off for 8 s while all are asked for more than a leaky bucket
// lets through. When it is back, with its share of those 8 s on top of what the others
// have used, the fleet admits again within a drain time. By the node's units alone it
// would take 4 s with two nodes and 2 s with four.
//
// Fault 80: nobody is refused for longer than a drain time.
func TestRealCutOffForLong(t *testing.T) {
	t.Parallel()
	const cutOff = 8 * time.Second
	rule := limit.Must(limit.Funnel("busy", 25, 50, time.Second))
	for _, size := range []int{2, 4} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			srv, p := proxied(t)
			o := hybrid.Options{SyncInterval: 50 * time.Millisecond, HeartbeatInterval: 500 * time.Millisecond, MaxBackoff: 200 * time.Millisecond}
			nodes := realFleet(t, srv.Addr(), size-1, o)
			unavailable := realNode(t, p.Addr(), o)
			nodes = append(nodes, unavailable)
			eventually(t, "all know each other", func() bool { return nodes[0].State().Nodes == size && unavailable.State().Nodes == size })
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			const step = 20 * time.Millisecond // what this process did not ask for longer does not count
			// ask returns the longest time for which nobody was admitted.
			ask := func(d time.Duration) (longest time.Duration) {
				none, last := time.Duration(0), time.Now()
				for end := last.Add(d); last.Before(end); <-tick.C {
					now := time.Now()
					none += min(now.Sub(last), step)
					last = now
					for _, l := range nodes {
						if l.Allow("k", rule) {
							none = 0
						}
					}
					longest = max(longest, none)
				}
				return longest
			}
			ask(time.Second)
			p.Refuse(true)
			p.Cut()
			ask(cutOff)
			wantMode(t, unavailable, hybrid.Degraded)
			p.Refuse(false)
			got := ask(6 * time.Second)
			wantMode(t, unavailable, hybrid.Synced)
			drain, unit := time.Duration(arith.Of(rule).Full.NS), rule.Period()/time.Duration(rule.Units())
			// The others hear of it within two intervals and a call, and admit when there is
			// room for a unit.
			if most := drain + unit + 2*o.SyncInterval + 250*time.Millisecond; got > most {
				t.Errorf("nobody was admitted for %v, want at most %v", got, most)
			}
			for _, l := range nodes {
				flush(t, l)
				conserved(t, l, true)
				if s := l.Stats(); (s.ForgivenUnits > 0) != (l == unavailable) || s.Losses+s.RolledBackKeys > 0 {
					t.Errorf("%+v", s)
				}
			}
			t.Logf("nobody was admitted for %v, %d units forgiven", got, unavailable.Stats().ForgivenUnits)
		})
	}
}

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
		{limit.Must(limit.Funnel("a thousand a month", 1000, 1000, 30*day)), 5000, 2000},
		{limit.Must(limit.Funnel("one in ten years", 10, 1, 3650*day)), 100, 10},
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
				s := l.Stats()
				if s.AckedUnits < want || s.AckedUnits > want+1 || s.AckedUnits+s.ForgivenUnits != s.AdmittedUnits || s.Losses+s.RolledBackKeys > 0 {
					t.Errorf("node %d: want %d booked: %+v", i, want, s)
				}
				if got := usedIn(t, dial(t, srv.Addr()), "k", tc.rule); got != tc.rule.Limit() {
					t.Errorf("Redis counts %d", got)
				}
			}
		})
	}
}
