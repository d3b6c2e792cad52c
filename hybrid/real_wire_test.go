package hybrid_test

import (
	"testing"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// proxied starts a real server and a proxy in front of it.
func proxied(t testing.TB, args ...string) (*redistest.Server, *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t, args...)
	p, err := redistest.NewProxy(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return srv, p
}

// settled waits until l is well and nothing is pending.
func settled(t testing.TB, l *hybrid.Limiter) {
	t.Helper()
	eventually(t, "synced, nothing pending", func() bool {
		return l.State().Mode == hybrid.Synced && l.Figures().PendingUnits == 0
	})
	conserved(t, l, true)
}

// settles waits until l is well and nothing is pending, and checks that Redis
// counts exactly what b has recorded.
func (b *books) settles(t testing.TB, l *hybrid.Limiter, addr string) {
	t.Helper()
	b.settlesIn(t, l, addr, 0)
}

// settlesIn is settles for a number of shards; 0 means the default.
func (b *books) settlesIn(t testing.TB, l *hybrid.Limiter, addr string, shards int) {
	t.Helper()
	settled(t, l)
	admin := dial(t, addr)
	b.matchIn(t, admin, shards)
	if got := ledgerSum(t, admin); got != b.sum() {
		t.Errorf("the ledgers add up to %d, admitted were %d", got, b.sum())
	}
}
