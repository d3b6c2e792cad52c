package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Users log in six times in a row, with a limit of 5, while the table is nearly full, so that many keys have no
// entry in the index: all log-ins are admitted, and nothing of them is left.
//
// Fault 107: units that are handed back of a key without an entry.
func TestHandedBackInACrowd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{MaxKeys: 8192})
		for i := range 12_200 {
			if n.Allow(fmt.Sprint("other ", i), ofMany); i%500 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(2 * time.Second)
		n.net.set(func(n *network) { n.lag = time.Millisecond })
		for i := range 100 {
			key, rule := fmt.Sprint("user ", i), fives[i%len(fives)]
			for range 6 {
				res, err := n.TakeExact(bg, limit.Check{Key: key, Rule: rule})
				if err != nil || !res.Allowed {
					t.Fatalf("%v, %s: %+v, %v", rule, key, res, err)
				}
				if back := n.Refund(key, rule, 1); back != 1 {
					t.Fatalf("%v, %s: %d given back", rule, key, back)
				}
			}
		}
		if s := n.Figures(); s.UnreturnedUnits != 0 {
			t.Errorf("%d units are not given back", s.UnreturnedUnits)
		}
	})
}

// A key leaves memory while Redis decides about it: what it has taken can be handed back all the same.
//
// Fault 107: units of a key that leaves while it is asked for.
func TestHandedBackOfAKeyThatLeaves(t *testing.T) {
	for _, rule := range fives {
		inBubble(t, func(t *testing.T, w *world) {
			n := w.synced(hybrid.Options{MaxKeys: 1, MaxRemembered: 1 << 17})
			n.net.set(func(n *network) { n.lag = 20 * time.Millisecond })
			for i := range 3 {
				done := make(chan bool)
				go func() {
					res, err := n.TakeExact(bg, limit.Check{Key: "k", Rule: rule})
					done <- err == nil && res.Allowed
				}()
				time.Sleep(10 * time.Millisecond)
				for j := range 6000 {
					n.Allow(fmt.Sprint("other ", i, "-", j), ofMany)
				}
				if !<-done {
					t.Fatalf("%v: call %d is refused", rule, i)
				}
				if back := n.Refund("k", rule, 1); back != 1 {
					t.Errorf("%v: call %d: %d given back", rule, i, back)
				}
				time.Sleep(400 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			if used := w.used("k", rule); used != 0 || n.Figures().UnreturnedUnits != 0 {
				t.Errorf("%v: Redis counts %d, %d are not given back", rule, used, n.Figures().UnreturnedUnits)
			}
		})
	}
}
