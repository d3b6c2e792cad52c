package sim

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Histories of notices, each without a fault but its own. Without a rule of design section 12 one
// of them breaks a promise.

// newNoticeSim returns a world of one server whose nodes tell notices, and hear each other.
func newNoticeSim(t *testing.T, nodes int, o Options, rules ...*limit.Rule) *sim {
	t.Helper()
	o.Shards = max(o.Shards, 1)
	s := emptySim(t, 1, o, 1, rules)
	s.oracle.loose, s.far = true, smallWait
	s.withNotices()
	for range nodes {
		s.addNode(Options{})
	}
	s.run(3 * time.Second)
	for _, n := range s.nodes {
		if !n.look().Subscribed {
			t.Fatalf("%s does not hear notices", n.name)
		}
	}
	return s
}

// takes asks a node for one unit so many times, and returns how many it admitted and the last
// answer.
func (n *simNode) takes(key string, rule *limit.Rule, times int) (admitted int, last limit.Result) {
	for range times {
		if last = n.take(key, rule, 1); last.Allowed {
			admitted++
		}
	}
	return admitted, last
}

// useUp has a node use up a key, and waits until all have heard.
func (s *sim) useUp(n *simNode, key string, rule *limit.Rule) {
	s.t.Helper()
	if got, _ := n.takes(key, rule, int(rule.Limit())); got != int(rule.Limit()) {
		s.t.Fatalf("%s admitted %d of %v", n.name, got, rule)
	}
	s.run(20 * time.Millisecond)
}

// What makes room without a Reset is said as well.
func TestNoticeOfARefund(t *testing.T) {
	rule := smallWindow(5, 30*time.Second)
	s := newNoticeSim(t, 2, Options{}, rule)
	s.useUp(s.nodes[0], "k", rule)
	if got, _ := s.nodes[1].takes("k", rule, 1); got != 0 {
		t.Fatalf("%d admitted although it was used up", got)
	}
	s.run(1200 * time.Millisecond)
	s.nodes[1].takes("k", rule, 1) // Redis has refused it by now
	s.nodes[0].refund("k", rule, 2)
	s.run(1500 * time.Millisecond) // a lag until that is reported, and a tick until it is asked for
	if got, last := s.nodes[1].takes("k", rule, 1); got != 1 {
		t.Errorf("refused after a refund: %+v", last)
	}
}

// Redis fails over to a replica that is 60 s behind: its answer ends what was heard before.
//
// Fault 89: a notice of a database that is lost refuses no longer than until Redis has answered.
func TestNoticeBeforeAFailover(t *testing.T) {
	rule := smallWindow(5, time.Hour)
	s := newNoticeSim(t, 2, Options{}, rule)
	old := s.servers[0].save()
	s.run(time.Minute)
	s.useUp(s.nodes[0], "k", rule)
	if got, _ := s.nodes[1].takes("k", rule, 1); got != 0 {
		t.Fatalf("%d admitted although it was used up", got)
	}
	n := s.nodes[1]
	s.nodes[0].crash() // and with it what could restore the key
	s.servers[0].rollback(old)
	s.servers[0].clock.set(s.now, -int64(time.Minute), 0, false)
	s.run(2 * time.Second)
	n.takes("k", rule, 1)
	s.run(1500 * time.Millisecond)
	if got, last := n.takes("k", rule, 1); got != 1 {
		t.Errorf("refused after a failover by what was heard before: %+v", last)
	}
}

// used is the notice that a key is used up for so long.
func (s *sim) used(key string, rule *limit.Rule, d time.Duration) report.Notice {
	now := time.Duration(s.servers[0].time())
	n := s.roomOf(oracleKey{rule, key}, rule, redisstore.Renewed{Now: now})
	n.Until = now + d
	return n
}

// A counter that is made after the notice obeys it, and one that is made again. The first answer
// ends it.
//
// Fault 89: a counter that is made while a notice arrives.
func TestNoticeBeforeTheCounter(t *testing.T) {
	rule := smallWindow(5, 30*time.Second)
	s := newNoticeSim(t, 2, Options{}, rule)
	n := s.nodes[1]
	n.hear(reconcile.Message{Node: "node0", Notices: []report.Notice{s.used("k", rule, 20*time.Second)}}, 0)
	if got, last := n.takes("k", rule, 1); got != 0 || last.Source != limit.SourceNotice {
		t.Fatalf("a new counter does not obey: %+v", last)
	}
	n.forgetIdle()
	if n.counters[oracleKey{rule, "k"}] == nil {
		if got, last := n.takes("k", rule, 1); got != 0 {
			t.Errorf("a counter that is made again does not obey: %+v", last)
		}
	}
	s.run(250 * time.Millisecond) // Redis has answered: there is room
	if got, last := n.takes("k", rule, 1); got != 1 {
		t.Errorf("refused although Redis has answered: %+v", last)
	}
	if kept := n.link.Kept(); kept != 0 {
		t.Errorf("%d notices are kept for new counters although Redis has answered", kept)
	}
}

// A notice overtakes the first answer, which is of a time before it.
//
// Fault 89: a counter that waits for its first answer while a notice arrives.
func TestNoticeBeforeTheFirstAnswer(t *testing.T) {
	rule := smallWindow(5, 30*time.Second)
	s := newNoticeSim(t, 2, Options{}, rule)
	n := s.nodes[1]
	n.takes("k", rule, 1)
	for n.shard(0).Flight.Keys == 0 {
		s.run(100 * time.Microsecond)
	}
	is := s.used("k", rule, 20*time.Second)
	is.Now += 10 * time.Millisecond // Redis has yet to execute what is under way
	n.hear(reconcile.Message{Node: "node0", Notices: []report.Notice{is}}, 0)
	for n.shard(0).Flight.Keys > 0 {
		s.run(100 * time.Microsecond)
	}
	if got, last := n.takes("k", rule, 1); got != 0 || last.Source != limit.SourceNotice {
		t.Errorf("what was heard while the first answer was under way is not obeyed: %+v", last)
	}
}

// Ten pods are replaced one by one at a limit of 5 a day. What they have used up is refused by
// those that come, from the first check on or at the latest from the first answer.
func TestNoticeInARollingDeploy(t *testing.T) {
	rule := smallWindow(5, 24*time.Hour)
	s := newNoticeSim(t, 10, Options{}, rule)
	admitted := 0
	ask := func() {
		if got, _ := s.nodes[s.rng.IntN(len(s.nodes))].takes("k", rule, 1); got > 0 {
			admitted++
		}
	}
	const each = 5 * time.Second
	for range 10 {
		for range 10 {
			s.run(each / 10)
			ask()
		}
		s.nodes[0].crash()
		s.addNode(Options{})
	}
	// A pod that starts has heard nothing: it may admit a unit before its first answer.
	if most := int(rule.Limit()) + 10; admitted > most {
		t.Errorf("%d admitted in a rolling deploy, at most %d", admitted, most)
	}
	t.Logf("%d of %d admitted in a rolling deploy of ten", admitted, rule.Limit())
}

// Notices from the far future, of unknown keys and shards, and about all keys at once do not stop
// a node, and refuse for a lag at most.
//
// Fault 89: forged notices.
func TestForgedNotices(t *testing.T) {
	rule := smallWindow(5, 30*time.Second)
	s := newNoticeSim(t, 2, Options{}, rule)
	n, forged := s.nodes[1], s.used("k", rule, time.Minute)
	late := forged
	late.Now, late.Until = farFuture, farFuture
	n.hear(reconcile.Message{Node: "forger", Notices: []report.Notice{late}}, 0)
	if got, last := n.takes("k", rule, 1); got != 1 {
		t.Errorf("refused by a notice of the year 2255: %+v", last)
	}
	for i := range 5_000 {
		forged.ID[0], forged.ID[1], forged.ID[2] = byte(i), byte(i>>8), byte(i>>16)
		n.hear(reconcile.Message{Node: "forger", Notices: []report.Notice{forged}}, 0)
	}
	if kept := n.link.Kept(); kept > 4096 {
		t.Errorf("%d notices kept", kept)
	}
	n.hear(reconcile.Message{Node: "forger", Notices: []report.Notice{s.used("k", rule, time.Minute)}}, 0)
	n.take("k", rule, 1)
	s.run(s.opt.MaxLag + 2*s.opt.SyncInterval + 10*time.Millisecond)
	if got, last := n.takes("k", rule, 1); got != 1 {
		t.Errorf("still refused a lag after a check: %+v", last)
	}
}

// What is announced are units that were booked now: not those of a batch that was sent again, or
// of an outage, and not that a key is still used up.
func TestOnlyNewUnitsAreAnnounced(t *testing.T) {
	rule := smallWindow(5, 30*time.Second)
	for name, c := range map[string]struct {
		play func(s *sim, n *simNode)
		want uint64
	}{
		"booked at once": {func(s *sim, n *simNode) { s.useUp(n, "k", rule) }, 1},
		"asked again": {func(s *sim, n *simNode) {
			s.useUp(n, "k", rule)
			for range 12 {
				s.run(time.Second)
				n.takes("k", rule, 1)
			}
		}, 1},
		"a reply is lost": {func(s *sim, n *simNode) {
			n.wires[0] = wire{dropRep: true}
			s.useUp(n, "k", rule)
			n.wires[0] = wire{}
			if s.run(time.Second); n.stats.Resent.Load() == 0 || n.core.State().Mode != reconcile.Synced {
				t.Errorf("not sent again: %v", n.core.State())
			}
		}, 0},
		"an outage": {func(s *sim, n *simNode) {
			s.down = true
			s.run(3 * time.Second)
			s.useUp(n, "k", rule)
			s.down = false
			if s.run(10 * time.Second); n.core.State().Mode != reconcile.Synced {
				t.Errorf("not back: %v", n.core.State())
			}
		}, 0},
	} {
		s := newNoticeSim(t, 2, Options{Fallback: reconcile.FullLimit}, rule)
		n := s.nodes[0]
		if c.play(s, n); n.stats.Announced.Load() != c.want || n.counters[oracleKey{rule, "k"}].Unsynced() > 0 {
			t.Errorf("%s: %d announced, want %d", name, n.stats.Announced.Load(), c.want)
		}
	}
}

// What is handed back of a key that refuses is reported within a lag, although the key itself asks
// less often. The lag of this rule is shorter than MaxLag.
func TestRefusedKeyReportsInTime(t *testing.T) {
	rule := smallWindow(5, 2*time.Second)
	s := newNoticeSim(t, 2, Options{}, rule)
	n := s.nodes[0]
	s.useUp(n, "k", rule)
	n.takes("k", rule, 1)
	s.run(3 * s.opt.SyncInterval / 2) // until it waits for its next question
	n.refund("k", rule, 2)
	if s.run(550*time.Millisecond + 2*s.opt.SyncInterval); n.stats.Returned.Load() != 1 {
		t.Error("units that were handed back are not reported within a lag")
	}
}

// A report that may wait for others leaves a tick later at most.
func TestCompany(t *testing.T) {
	rule := smallWindow(100, time.Minute)
	s := newNoticeSim(t, 4, Options{}, rule)
	n := s.nodes[0]
	n.takes("k", rule, 90)
	s.run(500 * time.Millisecond) // a lag is 1 s
	n.takes("k", rule, 1)         // 4 nodes can hide as many as 10 are left
	c := n.counters[oracleKey{rule, "k"}]
	if s.run(20 * time.Millisecond); c.Unsynced() != 1 {
		t.Errorf("%d units wait for company, want 1", c.Unsynced())
	}
	if s.run(s.opt.SyncInterval); c.Unsynced() != 0 {
		t.Errorf("%d units still wait for company", c.Unsynced())
	}
}
