package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Another node has said that there is room in keys. They are used up again here, leave memory, and come back
// again and again: their units count, also in an outage. The notice says nothing of units that came after it.
//
// Fault 106: a key that leaves after a notice of room.
func TestKeysLeaveAfterANoticeOfRoom(t *testing.T) {
	flood := limit.Must(limit.FixedWindow("flood", 10, time.Hour))
	for _, outage := range []bool{false, true} {
		for _, how := range []string{"no notice", "reset", "refund"} {
			t.Run(fmt.Sprint(how, ", outage ", outage), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					const keys = 40
					rule, key := fives[1], func(i int) string { return fmt.Sprint("k", i) }
					nodes := w.fleet(2, hybrid.Options{MaxKeys: 64, MaxRemembered: 1 << 16, Fallback: hybrid.FullLimit})
					a, b := nodes[0], nodes[1]
					for i := range keys {
						switch how {
						case "reset":
							wantAdmitted(t, a.Limiter, key(i), rule, 5, 5)
							flush(t, a.Limiter)
							if err := a.Reset(bg, key(i), rule); err != nil {
								t.Fatal(err)
							}
						case "refund":
							wantAdmitted(t, a.Limiter, key(i), rule, 5, 5)
							flush(t, a.Limiter)
							a.Refund(key(i), rule, 5)
							flush(t, a.Limiter)
						}
					}
					time.Sleep(time.Second)
					for i := range keys {
						wantAdmitted(t, b.Limiter, key(i), rule, 5, 5)
					}
					flush(t, b.Limiter)
					time.Sleep(time.Second)
					if outage {
						b.net.down()
						time.Sleep(5 * time.Second)
						wantMode(t, b.Limiter, hybrid.Degraded)
					}
					for round := range 3 {
						for i := range 3000 {
							b.Allow(fmt.Sprint("f", round, i), flood)
						}
						time.Sleep(2 * time.Second)
						for i := range keys {
							if n := admitted(b.Limiter, key(i), rule, 10); n != 0 {
								t.Fatalf("round %d: %d more units of %s", round, n, key(i))
							}
						}
						time.Sleep(time.Second)
					}
				})
			})
		}
	}
}
