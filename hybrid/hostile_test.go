package hybrid_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
)

// No error, event or log line shows more of a key than some bytes, nor anything that cannot be
// printed: neither of a key that is kept as a hash, nor of one that is kept as it is.
func TestErrorsOfHostileKeys(t *testing.T) {
	const most = 400 // bytes of an error
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		var mu sync.Mutex // protects events
		var events []hybrid.Event
		n := w.synced(hybrid.Options{Logger: slog.New(&log), OnEvent: func(e hybrid.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}})
		for what, key := range map[string]string{"long": limittest.HostileKey(), "short": limittest.HostileKey()[:200]} {
			n.Take(key, longTen, 10)
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			limittest.CheckError(t, what+", a wait that is too long", n.Wait(ctx, key, longTen), most)
			limittest.CheckError(t, what+", a wait for ever", n.WaitN(ctx, key, longTen, 11), most)
			cancel()
			time.Sleep(2 * time.Second)
			for _, name := range w.redis.Keys() {
				if strings.Contains(name, longTen.Name()) {
					if err := w.redis.Set(name, "\x1b[2J garbage"); err != nil {
						t.Fatal(err)
					}
				}
			}
			limittest.CheckError(t, what+", a broken key", n.Reset(bg, key, longTen), most)
			n.Refund(key, longTen, 3)
			n.Take(key, longTen, 1)
			time.Sleep(2 * time.Second)
			for _, name := range w.redis.Keys() {
				if strings.Contains(name, longTen.Name()) {
					w.redis.Del(name)
				}
			}
			time.Sleep(10 * time.Second)
		}
		found := 0
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			if e.Kind == hybrid.EventQuarantined {
				found++
				limittest.CheckError(t, "the event", errors.New(e.String()), most)
				limittest.CheckError(t, "its error", e.Err, most)
			}
		}
		if found < 2 {
			t.Errorf("%d keys were set aside, want 2: %d events", found, len(events))
		}
		for line := range strings.Lines(log.text()) {
			limittest.CheckError(t, "the log", errors.New(strings.TrimSpace(line)), most)
		}
		if _, err := json.Marshal(events); err != nil {
			t.Error(err)
		}
	})
}
