package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// fives are limits of five units, by each algorithm that nodes can share. None of their units expires in
// a test.
var fives = []*limit.Rule{
	limit.Must(limit.TokenBucket("bucket", 1, 10_000*time.Hour, 5)),
	limit.Must(limit.SlidingWindow("sliding", 5, 10_000*time.Hour)),
	limit.Must(limit.FixedWindow("fixed", 5, 10_000*time.Hour)),
	limit.Must(limit.Quota("quota", 5, limit.Calendar{Unit: limit.Month})),
}

// way is how one unit is taken, and how it is handed back: nil if it was refused.
type way struct {
	name string
	take func(t testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) (handBack func())
}

// refunded is a way to take a unit that Refund gives back.
func refunded(name string, take func(l *hybrid.Limiter, key string, rule *limit.Rule) (ok bool, err error)) way {
	return way{name, func(t testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) func() {
		switch ok, err := take(l, key, rule); {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case ok:
			return func() {
				if back := l.Refund(key, rule, 1); back != 1 {
					t.Errorf("%s: %d units given back", name, back)
				}
			}
		}
		return nil
	}}
}

var ofMany = limit.Must(limit.FixedWindow("many", 2000, 10_000*time.Hour))

// combined returns a rule of two parts: rule, and one that admits more.
func combined(rule *limit.Rule) *limit.Rule { return limit.Must(limit.Combine("both", rule, ofMany)) }

// waysBack are all ways of package hybrid by which units are handed back.
var waysBack = []way{
	refunded("Take", func(l *hybrid.Limiter, key string, rule *limit.Rule) (bool, error) { return l.Allow(key, rule), nil }),
	refunded("TakeExact", func(l *hybrid.Limiter, key string, rule *limit.Rule) (bool, error) {
		res, err := l.TakeExact(bg, limit.Check{Key: key, Rule: rule})
		return res.Allowed, err
	}),
	refunded("TakeAtMost", func(l *hybrid.Limiter, key string, rule *limit.Rule) (bool, error) {
		n, _ := l.TakeAtMost(key, rule, 1)
		return n == 1, nil
	}),
	refunded("Wait", func(l *hybrid.Limiter, key string, rule *limit.Rule) (bool, error) {
		return true, l.Wait(bg, key, rule)
	}),
	refunded("Charge", func(l *hybrid.Limiter, key string, rule *limit.Rule) (bool, error) {
		return l.Charge(key, rule, 1) == 1, nil
	}),
	refunded("TakeAll", func(l *hybrid.Limiter, key string, rule *limit.Rule) (bool, error) {
		return l.TakeAll(limit.Check{Key: key, Rule: rule}, limit.Check{Key: "other", Rule: ofMany}).Allowed, nil
	}),
	refunded("TakeExact", func(l *hybrid.Limiter, key string, rule *limit.Rule) (bool, error) {
		v, err := l.TakeExact(bg, limit.Check{Key: key, Rule: rule})
		return v.Allowed, err
	}),
	{"several limits", func(_ testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) func() {
		if both := combined(rule); l.Allow(key, both) {
			return func() { l.Refund(key, both, 1) }
		}
		return nil
	}},
	{"several limits, exact", func(t testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) func() {
		both := combined(rule)
		if exact(t, l, key, both) {
			return func() { l.Refund(key, both, 1) }
		}
		return nil
	}},
	{"Cancel", func(_ testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) func() {
		r := l.Reserve(key, rule)
		if r.OK() && r.Delay() == 0 {
			return func() { r.Cancel(bg) }
		}
		r.Cancel(bg)
		return nil
	}},
	{"with a context, exact", func(t testing.TB, l *hybrid.Limiter, key string, rule *limit.Rule) func() {
		c := limit.WithContext(l)
		if res, err := c.Take(bg, key, rule.Exact(), 1); err != nil {
			t.Error(err)
		} else if res.Allowed {
			return func() {
				if _, err := c.Refund(bg, key, rule, 1); err != nil {
					t.Error(err)
				}
			}
		}
		return nil
	}},
}

// eachWay runs a test in a bubble for each rule of fives and each way.
func eachWayInBubble(t *testing.T, test func(t *testing.T, w *world, rule *limit.Rule, by way)) {
	for _, rule := range fives {
		for _, by := range waysBack {
			t.Run(rule.Name()+" "+by.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) { test(t, w, rule, by) })
			})
		}
	}
}

// awaitAllBack checks that no unit of a key counts: not in Redis, nor for the next calls of the nodes.
func awaitAllBack(t *testing.T, w *world, rule *limit.Rule, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		flush(t, n.Limiter)
		if s := n.Figures(); s.UnreturnedUnits != 0 {
			t.Errorf("%d units are counted as not given back", s.UnreturnedUnits)
		}
		conserved(t, n.Limiter, true)
	}
	time.Sleep(time.Second) // what had leaked of a unit when it was handed back
	if used := w.used("k", rule); used != 0 {
		t.Errorf("Redis counts %d units: %s", used, w.admin.Get(bg, counterKey(rule, "k")).Val())
	}
	for i, n := range nodes {
		for range 5 / len(nodes) {
			if !exact(t, n.Limiter, "k", rule) {
				t.Errorf("node %d: a unit that was handed back is refused", i)
			}
		}
	}
}

// One user takes a unit and hands it back, 24 times in a row: all are admitted, and then five units are
// left.
//
// Fault 107: units that are handed back right after they were taken.
func TestHandedBackInARow(t *testing.T) {
	eachWayInBubble(t, func(t *testing.T, w *world, rule *limit.Rule, by way) {
		n := w.synced(hybrid.Options{})
		n.net.set(func(n *network) { n.lag = time.Millisecond })
		for i := range 24 {
			if handBack := by.take(t, n.Limiter, "k", rule); handBack != nil {
				handBack()
			} else {
				t.Errorf("call %d of 24 is refused", i)
			}
		}
		awaitAllBack(t, w, rule, n)
	})
}

// 500 calls of twelve callers, on two nodes, take some time between: no unit is lost.
//
// Fault 107: units that are handed back by many callers, while reports are under way.
func TestHandedBackByMany(t *testing.T) {
	eachWayInBubble(t, func(t *testing.T, w *world, rule *limit.Rule, by way) {
		if by.name == "Wait" {
			t.Skip("each waits for a unit of the others, for hours")
		}
		size := 2
		if by.name == "Cancel" {
			size = 1 // nothing is given back before reservations of another node
		}
		nodes := w.fleet(size, hybrid.Options{SyncInterval: 20 * time.Millisecond})
		rng := rand.New(rand.NewPCG(107, 1))
		var draw sync.Mutex
		pause := func(most time.Duration) {
			draw.Lock()
			d := time.Duration(rng.Int64N(int64(most)))
			draw.Unlock()
			time.Sleep(d)
		}
		var all sync.WaitGroup
		for i := range 12 {
			n := nodes[i%size]
			n.net.set(func(n *network) { n.lag = 3 * time.Millisecond })
			all.Go(func() {
				for range 42 {
					pause(20 * time.Millisecond)
					if handBack := by.take(t, n.Limiter, "k", rule); handBack != nil {
						pause(40 * time.Millisecond)
						handBack()
					}
				}
			})
		}
		all.Wait()
		awaitAllBack(t, w, rule, nodes...)
	})
}

// A unit is taken before Redis has first answered, or while a report of its key is under way, and is
// handed back before that report is answered.
//
// Fault 107: before the first answer, and during a report.
func TestHandedBackBeforeAnAnswer(t *testing.T) {
	eachWayInBubble(t, func(t *testing.T, w *world, rule *limit.Rule, by way) {
		net := new(network)
		net.lag = 5 * time.Millisecond
		n := w.node(hybrid.Options{}, net)
		for range 4 { // the first exchange of the node is under way, then a report of the key
			handBack := by.take(t, n.Limiter, "k", rule)
			if handBack == nil {
				t.Fatal("refused")
			}
			n.Allow("k", rule)
			net.set(func(n *network) { n.lag = 100 * time.Millisecond })
			go n.Flush(bg)
			time.Sleep(time.Millisecond)
			net.set(func(n *network) { n.lag = 5 * time.Millisecond })
			other := by.take(t, n.Limiter, "k", rule)
			handBack()
			if other == nil {
				t.Fatal("refused during a report")
			}
			other()
			if back := n.Refund("k", rule, 1); back != 1 {
				t.Fatalf("%d units given back", back)
			}
			time.Sleep(time.Second)
		}
		awaitAllBack(t, w, rule, n)
	})
}

// Another node finds the units after one exchange, although Redis has called the key used up.
//
// Fault 107: units that are handed back are found by the other nodes.
func TestHandedBackToTheFleet(t *testing.T) {
	eachWayInBubble(t, func(t *testing.T, w *world, rule *limit.Rule, by way) {
		nodes := w.fleet(2, hybrid.Options{})
		var back []func()
		for range 5 {
			back = append(back, by.take(t, nodes[0].Limiter, "k", rule))
		}
		flush(t, nodes[0].Limiter)
		time.Sleep(time.Second)
		if exact(t, nodes[1].Limiter, "k", rule) || nodes[1].Allow("k", rule) {
			t.Fatal("admitted although the key is used up")
		}
		for _, handBack := range back {
			handBack()
		}
		flush(t, nodes[0].Limiter)
		// A notice says so at once. Without it a node that refuses asks after 5 s.
		admitted := 0
		for begun := time.Now(); admitted < 5 && time.Since(begun) < time.Second; time.Sleep(100 * time.Millisecond) {
			for admitted < 5 && exact(t, nodes[1].Limiter, "k", rule) {
				admitted++
			}
		}
		if admitted < 5 {
			t.Errorf("the other node admits %d of 5 units", admitted)
		}
	})
}

// Units are handed back once at most, and never more than were taken: as many calls at once hand back
// what only one of them has taken, and a reset comes between.
//
// Fault 107: no unit is handed back twice.
func TestHandedBackOnce(t *testing.T) {
	for _, rule := range fives {
		t.Run(rule.Name(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n := w.synced(hybrid.Options{})
				n.net.set(func(n *network) { n.lag = 10 * time.Millisecond })
				n.AllowN("k", rule, 2)
				go n.Flush(bg)
				time.Sleep(time.Millisecond)
				if !exact(t, n.Limiter, "k", rule) {
					t.Fatal("refused")
				}
				back := int64(0)
				for range 5 {
					back += n.Refund("k", rule, 1)
				}
				time.Sleep(time.Second)
				if s := n.Figures(); back != 3 || s.UnreturnedUnits != 2 || s.RefundedUnits != 3 {
					t.Errorf("%d units of 3 given back, %d not", back, s.UnreturnedUnits)
				}
				w.wantUsed("k", rule, 0)
				// The reset clears the unit, so what is handed back of it is not subtracted from later ones.
				go n.Flush(bg)
				time.Sleep(time.Millisecond)
				exact(t, n.Limiter, "k", rule)
				if err := n.Set(bg, "k", rule, 4); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				flush(t, n.Limiter)
				w.wantUsed("k", rule, 4)
			})
		})
	}
}

// A key that must leave memory before its refund is reported: Redis goes on counting the unit, and a figure says
// so.
//
// Fault 107: a refund whose key has no room in memory.
func TestHandedBackWithoutRoom(t *testing.T) {
	flood, lost := limit.Must(limit.FixedWindow("flood", 10, time.Hour)), int64(0)
	for _, rule := range fives[:2] {
		inBubble(t, func(t *testing.T, w *world) {
			const keys = 3000
			n := w.synced(hybrid.Options{MaxKeys: 64})
			key := func(i int) string { return fmt.Sprint("k", i) }
			for i := range keys {
				n.Allow(key(i), rule)
				if i%500 == 499 {
					flush(t, n.Limiter)
				}
			}
			n.net.down()
			time.Sleep(10 * time.Second)
			wantMode(t, n.Limiter, hybrid.Degraded)
			back := int64(0)
			for i := range keys {
				back += n.Refund(key(i), rule, 1)
			}
			for i := range 15_000 {
				n.Allow(fmt.Sprint("f", i), flood)
			}
			n.net.up()
			time.Sleep(30 * time.Second)
			flush(t, n.Limiter)
			used := int64(0)
			for i := range keys {
				used += w.used(key(i), rule)
			}
			lost += used
			if s := n.Figures(); s.UnreturnedUnits != used+back-keys {
				t.Errorf("%v: %d units given back, Redis counts %d, %d are counted as not given back", rule, back, used, s.UnreturnedUnits)
			}
		})
	}
	if lost == 0 {
		t.Error("no refund was lost")
	}
}
