package sim

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// An exact call makes the view of a key new. A unit that the node has admitted by itself is reported within
// a lag all the same, also while the key is refused by a notice.
//
// Fault 104: what is not exact beside what is.
func TestUnitsAreReportedBesideExactCalls(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("w", 1000, time.Hour))
	s := emptySim(t, 1, Options{SyncInterval: simInterval, MaxLag: time.Second, Shards: 1}, 1, []*limit.Rule{rule})
	s.oracle.loose = true
	s.withNotices()
	n, k := s.addNode(Options{}), oracleKey{rule, "key0"}
	s.run(2 * time.Second)
	n.take("key0", rule, 1)
	for n.unsynced() > 0 {
		s.run(10 * time.Millisecond)
	}
	n.take("key0", rule, 1)
	s.run(800 * time.Millisecond)
	name, sent := s.keyspace().CounterKey(rule, "key0"), n.time()
	got := s.redis.take(s.servers[0].time(), []redisstore.Ask{{Counter: name, Rule: rule, Units: 2, Own: 2}}, true)
	s.run(time.Millisecond)
	n.hear(reconcile.Message{Node: "another", Notices: []report.Notice{{ // it overtakes the answer
		ID: redisstore.NoticeIDOf(name), Shape: arith.Of(rule).ShapeHash(), Limit: rule.Limit(),
		Now: time.Duration(s.servers[0].time()), Until: time.Duration(s.servers[0].time()) + time.Minute,
	}}}, 0)
	s.run(time.Millisecond)
	n.counters[k].Learn(n.time(), report.Answer{State: got.Answers[0].State, Rule: rule, ServerNow: int64(got.Now), Sent: sent})
	if !n.counters[k].HasNotice() || n.unsynced() != 1 {
		t.Fatalf("%d units wait", n.unsynced())
	}
	s.run(500 * time.Millisecond) // then the unit is 1.3 s old
	if n.unsynced() != 0 {
		t.Error("a unit waits for longer than a lag")
	}
}
