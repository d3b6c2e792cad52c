package hybrid_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Ever new keys come whose units soon count no more. Memory does not grow with their number: not while Redis is
// away or after Close, when nobody takes anything out of the queues, nor otherwise; and Redis empties by itself.
//
// Fault 38: ever new keys while nobody drains the queues.
// Fault 40: heap, goroutines and Redis stay flat.
func TestMemoryIsBounded(t *testing.T) {
	rule := limit.Must(limit.SlidingWindow("short", 10, 20*time.Millisecond))
	for _, state := range []string{"synced", "outage", "closed"} {
		t.Run(state, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n := w.synced(hybrid.Options{MaxKeys: 1000})
				// Some 4,000 counters are live. What finds a key fast refers to up to 20,000 more that are
				// forgotten: up to 12 MB that come and go. 50,000 counters would be 17 MB and more.
				first, most := 10_000, uint64(12<<20)
				switch state {
				case "synced":
					first, most = 3_000, 2<<20 // nothing is live when it is measured; 15,000 counters would be 5 MB
				case "outage":
					n.net.down()
					n.Allow("k", longTen)
					time.Sleep(5 * time.Second)
					wantMode(t, n.Limiter, hybrid.Degraded)
				case "closed":
					_ = n.Shutdown(bg)
				}
				flood := func(from, to int) uint64 {
					for i := from; i < to; i++ {
						n.Allow(fmt.Sprintf("k%d", i), rule)
						if i%200 == 0 {
							time.Sleep(25 * time.Millisecond)
						}
					}
					if state == "synced" {
						everyKeyExpires(t, w.admin)
						time.Sleep(10 * time.Minute)
						if keys := w.redis.Keys(); len(keys) > 5 {
							t.Errorf("%d keys are left in Redis", len(keys))
						}
					}
					return heap()
				}
				before, goroutines := flood(0, first), runtime.NumGoroutine()
				if after := flood(first, 6*first); after > before+most {
					t.Errorf("heap of %d kB after %d keys, %d kB after %d, with %d live", before>>10, first, after>>10, 6*first, n.Figures().Keys)
				} else {
					t.Logf("heap of %d kB, then %d kB", before>>10, after>>10)
				}
				if now := runtime.NumGoroutine(); now > goroutines+10 {
					t.Errorf("%d goroutines, %d before", now, goroutines)
				}
			})
		})
	}
}

// Neither a nil nor a zero limiter panics, whatever is asked of it.
func TestNilAndZeroLimiter(t *testing.T) {
	for _, l := range []*hybrid.Limiter{nil, {}} {
		if l.Allow("k", longTen) || l.Take("k", longTen, 1).Allowed || l.Peek("k", longTen).Allowed {
			t.Error("it admits")
		}
		_ = l.Figures()
		if l.ID() != "" || l.Flush(bg) != nil || l.Shutdown(bg) != nil || l.CheckRule(longTen) != nil {
			t.Error("it is somebody")
		}
		if m := l.State().Mode; m == hybrid.Synced {
			t.Errorf("mode %v", m)
		}
	}
}

// A nil context is none at all.
func TestNilContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{})
		n.Allow("k", longTen)
		var none context.Context
		if err := n.Flush(none); err != nil {
			t.Error(err)
		}
		if err := n.Shutdown(none); err != nil {
			t.Error(err)
		}
	})
}
