package sim

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
)

// A flight that Redis was to accept whatever its ledger says, because that had been
// lost, is not answered, and the ledger is lost once more: what it hands back is not
// taken off again.
//
// Fault 72: a second loss while the first is being repaired.
func TestRefundAndTwoLosses(t *testing.T) {
	s, n := lonely(t, Options{Shards: 1}, 1, 1)
	k, v := oracleKey{reconcileRule, "key0"}, s.servers[0]
	n.take("key0", reconcileRule, 9)
	s.run(2 * time.Second)
	clear(v.model.ledger)
	for n.stats.Losses.Load() == 0 {
		s.run(time.Millisecond)
	}
	s.lossRep = 1
	n.refund("key0", reconcileRule, 3)
	for range 1000 {
		s.run(time.Millisecond)
	}
	if v.model.back[n.name] != 1 {
		t.Fatalf("handed back %d times", v.model.back[n.name])
	}
	clear(v.model.ledger)
	s.run(time.Second)
	s.lossRep = 0
	s.run(10 * time.Second)
	if back, units := v.model.back[n.name], v.model.windows[s.keyspace().CounterKey(k.rule, k.key)].sum(); back != 1 || units != 7 {
		t.Errorf("handed back %d times, %d of 10 units are left, want 7", back, units)
	}
	if n.core.State().Mode != reconcile.Synced || n.stats.GivenUp.Load() != 1 {
		t.Errorf("%v, %d refunds given up", n.core.State(), n.stats.GivenUp.Load())
	}
}

func (w *modelWindow) sum() (n int64) {
	for _, u := range w.buckets {
		n += u
	}
	return n
}
