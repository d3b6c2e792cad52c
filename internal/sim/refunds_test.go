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

// A flight that hands something back is applied and not answered, and the ledger is lost. A copy of the process has
// the number before it under way, and Redis accepts that. The flight is not applied a second time.
//
// Fault 77: a copy of a process, while data is lost.
func TestRefundAndALossBesideACopy(t *testing.T) {
	s, n := lonely(t, Options{Shards: 1}, 1, 1)
	k, v := oracleKey{reconcileRule, "key0"}, s.servers[0]
	copied := n.twin()
	copied.wires[0].dropTo = true
	n.take("key0", reconcileRule, 9)
	s.run(2 * time.Second)
	n.wires[0].dropRep = true
	n.refund("key0", reconcileRule, 3)
	for v.model.back[n.name] == 0 {
		s.run(time.Millisecond)
	}
	n.wires[0].dropTo = true
	s.run(10 * time.Millisecond) // what is under way has arrived
	clear(v.model.ledger)
	copied.wires[0] = wire{}
	copied.take("key1", reconcileRule, 1)
	for copied.unsynced() > 0 {
		s.run(time.Millisecond)
	}
	n.wires[0] = wire{}
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

// handedBack returns how many operations have handed something back, or may have.
func (n *simNode) handedBack() int64 {
	return n.stats.Returned.Load() + int64(n.stats.GivenUp.Load())
}

// unanswered returns how many operations are under way that hand something
// back.
func (n *simNode) unanswered() (sum int) {
	for _, sh := range n.look().Shards {
		sum += sh.Flight.Refunds
	}
	return sum
}

func (n *simNode) unsynced() (sum int64) {
	for _, c := range n.order {
		sum += c.Unsynced()
	}
	return sum
}
