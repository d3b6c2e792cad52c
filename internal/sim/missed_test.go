package sim

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// resetMissed uses up a key, has a node refuse it for a while, resets the key at the other node, and returns
// for how long the first node goes on refusing. before is called just before the reset, after just after it.
func resetMissed(s *sim, key string, while time.Duration, before, after func()) time.Duration {
	a, b, rule := s.nodes[0], s.nodes[1], s.rules[0]
	k := oracleKey{rule, key}
	a.take(key, rule, rule.Limit())
	for range while / (10 * time.Millisecond) { // so that Redis has answered that it is used up
		b.take(key, rule, 1)
		s.run(10 * time.Millisecond)
	}
	before()
	a.set(k, 0)
	s.run(20 * time.Millisecond)
	after()
	for begun := s.now; ; s.run(10 * time.Millisecond) {
		if b.take(key, rule, 1).Allowed || s.now-begun > int64(time.Minute) {
			return time.Duration(s.now - begun)
		}
	}
}

// A node that misses the notice that a key has room again asks Redis as if there were no notices: a lag
// after the gap at the latest.
//
// Fault 89: a notice of room is lost between two subscriptions, because messages come too fast, or
// because the key's server is out of reach.
func TestMissedNoticeOfRoom(t *testing.T) {
	const resubscribed = 450 * time.Millisecond // at the latest, see simSub
	rule := limit.Must(limit.FixedWindow("w", 50, time.Hour))
	sub := func(s *sim) *simSub { return s.air.subs[1] }
	nothing := func(*sim) {}
	for name, c := range map[string]struct {
		before, after func(*sim)
		gap           time.Duration
	}{
		"nothing": {nothing, nothing, 0},
		"between two subscriptions": {
			func(s *sim) { sub(s).end(errBroken) },
			nothing,
			resubscribed,
		},
		"too many messages": {
			func(s *sim) { s.air.filter = func(*simNode, reconcile.Message) bool { return false } },
			func(s *sim) {
				s.air.filter = nil
				s.nodes[1].step(reconcile.Received{Dropped: true})
			},
			0,
		},
		"the key's server is out of reach": {
			func(s *sim) {
				b := s.nodes[1]
				b.wires[1].refuse = true
				b.takeAll(10) // which notices that
				s.untilMode(b, reconcile.Degraded)
			},
			func(s *sim) {
				s.nodes[1].wires[1].refuse = false
				s.untilMode(s.nodes[1], reconcile.Synced)
			},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, while := range []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second} {
				s := spread(t, Options{Shards: 2}, func(i int) int { return i }, rule)
				s.withNotices()
				s.addNode(Options{})
				s.addNode(Options{})
				s.run(3 * time.Second)
				most := c.gap + s.opt.MaxLag + 2*s.opt.SyncInterval
				if took := resetMissed(s, keyOf(s, 1), while, func() { c.before(s) }, func() { c.after(s) }); took > most {
					t.Errorf("refused for %v, and for %v after a reset, at most %v", while, took, most)
				}
			}
		})
	}
}

// Messages that arrive nearly a heartbeat late make a node subscribe anew, and what is under way then is
// lost. That costs no more than the lateness and a lag.
//
// Fault 89: notices are late.
func TestLateNoticeOfRoom(t *testing.T) {
	rule := limit.Must(limit.FixedWindow("w", 50, time.Hour))
	for _, late := range []time.Duration{900 * time.Millisecond, 960 * time.Millisecond, 1500 * time.Millisecond} {
		worst := time.Duration(0)
		for seed := range uint64(20) {
			s := emptySim(t, seed, Options{Shards: 1}, 1, []*limit.Rule{rule})
			s.oracle.loose = true
			s.withNotices()
			s.air.delay = int64(late)
			s.addNode(Options{})
			s.addNode(Options{})
			s.run(5*time.Second + time.Duration(seed)*170*time.Millisecond)
			while := 300*time.Millisecond + time.Duration(seed)*130*time.Millisecond
			worst = max(worst, resetMissed(s, "k", while, func() {}, func() {}))
		}
		t.Logf("%v late: refused for %v at most", late, worst)
		if most := late + 2*time.Second; worst > most {
			t.Errorf("messages are %v late: refused for %v after a reset, at most %v", late, worst, most)
		}
	}
}
