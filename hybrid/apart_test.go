package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// takenApart returns a world of one node whose flight of some keys got no answer twice,
// so that only its fate is asked for. If reached is true Redis has booked it.
func takenApart(t *testing.T, reached bool, take func(n *simNode)) (*sim, *simNode) {
	s, n := lonely(t, Options{Shards: 1, DegradeAfter: 100}, 1, 6)
	s.lossRep = 1
	if !reached {
		s.lossReq = 1
	}
	take(n)
	sh := &n.core.shards[0]
	for range 5000 {
		if s.run(time.Millisecond); sh.asksFate {
			return s, n
		}
	}
	t.Fatalf("nobody asks what has become of the flight: %+v", sh.flight)
	return nil, nil
}

// After a loss a flight whose fate was asked for is sent again under the number of the
// question. If it has arrived after the loss, Redis says that it has booked it before.
func TestBookedUnderAnEarlierNumber(t *testing.T) {
	s, n := takenApart(t, true, func(n *simNode) { n.takeAll(6) })
	n.core.shards[0].asksFate = false // as for a batch of which Redis says that it has lost what came before
	s.allTold(n, 2, 2, 2, 2, 2, 2)
}

// allTold lets all be well again, and checks that each unit was booked once.
func (s *sim) allTold(n *simNode, units ...int64) {
	s.t.Helper()
	s.lossReq, s.lossRep = 0, 0
	s.run(5 * time.Second)
	if sh := &n.core.shards[0]; sh.unsettled() || sh.asksFate || n.unsynced() != 0 || n.core.state.Mode != Synced {
		s.t.Fatalf("%v; flight %+v, %d to be told, %d units unsynced", n.core.state, sh.flight, len(sh.rest), n.unsynced())
	}
	for i, want := range units {
		key := s.keyspace().CounterKey(reconcileRule, fmt.Sprint("key", i))
		if w := s.servers[0].model.windows[key]; w == nil || w.sum() != want {
			s.t.Errorf("Redis counts %v of key%d, want %d", w, i, want)
		}
	}
	if sum := n.stats.acked.Load(); sum != n.admitted {
		s.t.Errorf("%d units are acknowledged, %d were admitted", sum, n.admitted)
	}
}

// A flight that got no answer twice is reported again in smaller ones, each unit once, and
// what was admitted meanwhile too.
//
// Fault 75: a batch takes Redis longer than the time-out.
func TestFlightIsTakenApart(t *testing.T) {
	for _, reached := range []bool{true, false} {
		t.Run(fmt.Sprint("reached=", reached), func(t *testing.T) {
			s, n := takenApart(t, reached, func(n *simNode) { n.takeAll(6) })
			n.core.servers[0].load.budget.ns, n.core.servers[0].load.budget.most = 3*cost(reconcileRule), 3*cost(reconcileRule)
			n.takeAll(6)
			before := n.stats.batches.Load()
			s.lossReq, s.lossRep = 0, 0
			first := 0
			for range 20_000 {
				s.run(time.Millisecond / 10)
				if f := n.core.shards[0].flight; f != nil && f.part && first == 0 {
					first = len(f.items)
				}
			}
			if first != 3 {
				t.Errorf("the first part has %d keys, want 3", first)
			}
			if got := n.stats.batches.Load() - before; got < 4 { // the question, two parts, what came meanwhile
				t.Errorf("all was told in %d script calls", got)
			}
			s.allTold(n, 3, 3, 3, 3, 3, 3)
		})
	}
}

// What a flight handed back is handed back once, whether it was booked or not.
//
// Fault 75: a batch takes Redis longer than the time-out.
func TestRefundInAFlightTakenApart(t *testing.T) {
	for _, reached := range []bool{true, false} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprint("reached=", reached, ",lost=", lost), func(t *testing.T) {
				s, n := lonely(t, Options{Shards: 1, DegradeAfter: 100}, 1, 0)
				for range 9 {
					n.takeAll(2)
				}
				s.run(2 * time.Second)
				s.lossRep = 1
				if !reached {
					s.lossReq = 1
				}
				n.take("key1", reconcileRule, 1)
				n.refund("key0", reconcileRule, 3)
				sh := &n.core.shards[0]
				for i := 0; !sh.asksFate; i++ {
					if s.run(time.Millisecond); i > 5000 {
						t.Fatal("nobody asks what has become of the flight")
					}
				}
				s.lossReq, s.lossRep = 0, 0
				if lost { // after the answer, and before what was booked is read
					for range 5000 {
						if s.run(time.Millisecond / 10); len(sh.rest) > 0 || sh.flight != nil && sh.flight.part {
							break
						}
					}
					s.servers[0].wipe()
				}
				s.run(10 * time.Second)
				back := s.servers[0].model.back[n.name]
				if back > 1 {
					t.Errorf("handed back %d times", back)
				}
				key := s.keyspace().CounterKey(reconcileRule, "key0")
				got := s.servers[0].model.windows[key].sum()
				// After a loss the refund may have been given up.
				if got != 6 && !(lost && got == 9) || got == 9 && n.stats.givenUp.Load() != 1 {
					t.Errorf("Redis counts %d of key0, %d refunds were given up", got, n.stats.givenUp.Load())
				}
			})
		}
	}
}

// A key that Redis could not use when it booked the flight is reported later, the others are
// not reported again.
func TestBrokenKeyInAFlightTakenApart(t *testing.T) {
	s, n := takenApart(t, true, func(n *simNode) {
		n.s.servers[0].poison(n.s.keyspace().CounterKey(reconcileRule, "key2"), true)
		n.takeAll(6)
	})
	// It is whole again when the parts are read, but was not when the flight was booked.
	s.servers[0].poison(s.keyspace().CounterKey(reconcileRule, "key2"), false)
	s.lossReq, s.lossRep = 0, 0
	s.run(time.Second)
	if got := n.stats.quarantined.Load(); got != 1 {
		t.Fatalf("%d keys are put aside, want 1", got)
	}
	s.run(10 * time.Second)
	s.allTold(n, 2, 2, 2, 2, 2, 2)
}

// What an outage is forgiven counts as forgiven, although the flight was booked without
// an answer.
func TestForgivenInAFlightTakenApart(t *testing.T) {
	r := redisstore.Reply{Fate: redisstore.FateEarlier, Forgiven: map[int]int64{1: 4}}
	_, n := takenApart(t, true, func(n *simNode) { n.takeAll(3) })
	c, sh := n.core, &n.core.shards[0]
	r.Earlier = sh.seq - 1
	c.fate(sh, r)
	if len(sh.rest) != 3 || sh.rest[1].forgiven != 4 || sh.rest[0].forgiven != 0 || !sh.rest[0].booked {
		t.Fatalf("%+v", sh.rest)
	}
	if sh.acked != sh.seq-1 || sh.flight != nil || sh.asksFate {
		t.Errorf("acknowledged %d of %d, flight %v", sh.acked, sh.seq, sh.flight)
	}
}

// What a pipeline may cost falls with answers that come late and grows with those that
// come soon, if it was used up.
func TestBudget(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, tt := range []struct {
		name       string
		from, want int64
		f          func(b *budget)
	}{
		{"soon, used up", 4 * ms, 4*ms + costStep, func(b *budget) { b.answered(4*ms, ms, 0, false) }},
		{"soon, not used up", 4 * ms, 4 * ms, func(b *budget) { b.answered(ms, ms, 0, false) }},
		{"soon, at the most", 10 * ms, 10 * ms, func(b *budget) { b.answered(10*ms, ms, 0, false) }},
		{"late", 4 * ms, 2 * ms, func(b *budget) { b.answered(4*ms, 40*ms, 0, false) }},
		{"late, of less", 10 * ms, 2 * ms, func(b *budget) { b.answered(4*ms, 40*ms, 0, false) }},
		{"late, of the least", 10 * ms / 64, 10 * ms / 64, func(b *budget) { b.answered(opCost, 40*ms, 0, false) }},
		{"late, but no later than it is far away", 4 * ms, 4*ms + 10*costStep, func(b *budget) { b.answered(4*ms, 170*ms, 150*ms, false) }},
		{"late by jitter", 4 * ms, 4*ms + 10*costStep, func(b *budget) { b.answered(4*ms, 170*ms, 90*ms, false) }},
		{"late, and far away", 4 * ms, 2 * ms, func(b *budget) { b.answered(4*ms, 310*ms, 150*ms, false) }},
		{"late, a connection was made", 4 * ms, 4 * ms, func(b *budget) { b.answered(4*ms, 310*ms, 150*ms, true) }},
		{"soon, a connection was made", 4 * ms, 4*ms + costStep, func(b *budget) { b.answered(4*ms, ms, 0, true) }},
		{"timed out", 10 * ms, 2 * ms, func(b *budget) { b.timedOut(4 * ms) }},
		{"timed out, of the least", 10 * ms / 64, 10 * ms / 64, func(b *budget) { b.timedOut(opCost) }},
		{"a question, late", 4 * ms, 4 * ms, func(b *budget) { b.answered(0, 40*ms, 0, false) }},
		{"a question, timed out", 4 * ms, 4 * ms, func(b *budget) { b.timedOut(0) }},
		{"anew", opCost, 10 * ms / 8, (*budget).anew},
		{"anew, and well", 9 * ms, 9 * ms, (*budget).anew},
	} {
		b := newBudget(250 * ms)
		b.ns = tt.from
		if tt.f(&b); b.ns != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, time.Duration(b.ns), time.Duration(tt.want))
		}
	}
	if b := newBudget(ms); b.most != ms/8 {
		t.Errorf("with a time-out of 1 ms: %v", time.Duration(b.most))
	}
	wide := limit.Must(limit.SlidingWindowBuckets("wide", 1000, time.Hour, 1000))
	if n := mostCost / cost(wide); n < 5 || n > 20 {
		t.Errorf("%d windows of 1,000 buckets in one pipeline", n)
	}
}

// Redis has booked a flight, and loses everything before its parts are read: what was
// sent counts as known, and is reported again.
func TestLossBeforePartsAreRead(t *testing.T) {
	s, n := takenApart(t, true, func(n *simNode) { n.takeAll(6) })
	s.lossReq, s.lossRep = 0, 0
	sh := &n.core.shards[0]
	for i := 0; len(sh.rest) == 0 && (sh.flight == nil || !sh.flight.part); i++ {
		if s.run(time.Millisecond / 10); i > 20_000 {
			t.Fatal("the flight is not taken apart")
		}
	}
	s.servers[0].wipe()
	s.allTold(n, 2, 2, 2, 2, 2, 2)
}
