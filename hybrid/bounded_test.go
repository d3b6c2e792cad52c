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

// floods asks for ever new keys whose units soon count no more, and fails if
// memory grows with their number.
func floods(t *testing.T, l *hybrid.Limiter, pause func(time.Duration)) {
	t.Helper()
	rule := limit.Must(limit.SlidingWindow("short", 10, 20*time.Millisecond))
	flood := func(from, to int) uint64 {
		for i := from; i < to; i++ {
			l.Allow(fmt.Sprintf("k%d", i), rule)
			if i%200 == 0 {
				pause(25 * time.Millisecond)
			}
		}
		return heap()
	}
	// Some 4,000 counters are live. What finds a key fast refers to up to 20,000 more
	// that are forgotten: up to 12 MB that come and go.
	before := flood(0, 10_000)
	// 50,000 counters would be 17 MB and more.
	if after := flood(10_000, 60_000); after > before+12<<20 {
		t.Errorf("heap of %d MB after 10,000 keys, %d MB after 60,000, with %d live", before>>20, after>>20, l.Stats().LiveCounters)
	}
}

// While Redis is away the reconciler takes nothing out of its queues. What the
// table forgets must not live on in them.
//
// Fault 38: ever new keys while nobody drains the queues.
func TestMemoryIsBoundedInAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{MaxKeys: 1000})
		n.net.down()
		time.Sleep(time.Second)
		n.Allow("k", longTen)
		time.Sleep(5 * time.Second)
		wantMode(t, n.Limiter, hybrid.Degraded)
		floods(t, n.Limiter, func(d time.Duration) { time.Sleep(d) })
	})
}

// After Close nobody drains the queues at all.
//
// Fault 38: ever new keys after Close.
func TestMemoryIsBoundedAfterClose(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{MaxKeys: 1000})
		if err := n.Shutdown(bg); err != nil {
			t.Fatal(err)
		}
		floods(t, n.Limiter, func(d time.Duration) { time.Sleep(d) })
	})
}

// Neither a nil nor a zero limiter panics, whatever is asked of it.
func TestNilAndZeroLimiter(t *testing.T) {
	for _, l := range []*hybrid.Limiter{nil, {}} {
		if l.Allow("k", longTen) || l.Take("k", longTen, 1).Allowed || l.Peek("k", longTen).Allowed {
			t.Error("it admits")
		}
		_ = l.Stats()
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

// A ledger with a number that no node reaches is forged, or broken; it is
// repaired like a lost one, and concerns nobody else.
//
// Fault 27: a ledger that is ahead of its node is repaired.
func TestForgedLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n := w.synced(hybrid.Options{Shards: 1})
		n.Allow("k", longTen)
		time.Sleep(time.Second)
		ledger := "hl:1:{0}:node:" + n.ID()
		if !w.redis.Exists(ledger) {
			t.Fatalf("no ledger %q among %v", ledger, w.redis.Keys())
		}
		for _, seq := range []string{"9007199254740992", "9007199254740991", "1000000"} {
			if err := w.redis.Set(ledger, seq+" 0 0 - -"); err != nil {
				t.Fatal(err)
			}
			before := n.Stats()
			time.Sleep(3 * time.Second) // heartbeats look at it
			wantMode(t, n.Limiter, hybrid.Synced)
			n.Allow("k", longTen)
			time.Sleep(2 * time.Second)
			after := n.Stats()
			if after.PendingUnits != 0 || after.Batches-before.Batches > 20 {
				t.Errorf("ledger %s: %d units pending after %d batches", seq, after.PendingUnits, after.Batches-before.Batches)
			}
		}
		conserved(t, n.Limiter, true)
	})
}
