package hybrid_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

type panicky struct{ logbook }

func (*panicky) Handle(_ context.Context, r slog.Record) error {
	if isOfTests(r) {
		return nil
	}
	panic("a handler of the user")
}

// A logger that panics must not cost the hook its call.
//
// Fault 61: the logger panics, and the hook is called all the same.
func TestLoggerPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var seen changes
		n := w.synced(hybrid.Options{Logger: slog.New(new(panicky)), OnStateChange: seen.add})
		time.Sleep(time.Second)
		if got := n.Figures().HookPanics; got != 1 {
			t.Errorf("%d panics counted, want 1", got)
		}
		if got := seen.modes(); !slices.Equal(got, []hybrid.Mode{hybrid.Synced}) {
			t.Errorf("the hook was told of %v, want synced", got)
		}
	})
}

// A hook that hangs holds up neither checks nor reports; only Close, which
// promises that nothing runs afterwards, waits for it until its context ends.
//
// Fault 62: a hook that hangs holds up nobody.
func TestHookHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		n := w.synced(hybrid.Options{OnStateChange: func(hybrid.State) { <-release }})
		n.Allow("k", longTen)
		for range 30 { // more changes than are kept for a slow hook
			n.net.down()
			time.Sleep(3 * time.Second)
			n.net.up()
			time.Sleep(6 * time.Second)
		}
		wantMode(t, n.Limiter, hybrid.Synced)
		n.Allow("k", longTen)
		time.Sleep(time.Second)
		w.wantUsed("k", longTen, 2)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := n.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's error", err)
		}
		close(release)
	})
}

// What a limiter says about itself does not grow with its keys, and a log line never holds what a client has sent.
//
// Fault 63: neither Stats, states nor log lines name a key, but the one that is broken.
func TestMetricsHaveNoKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log logbook
		var seen changes
		n := w.synced(hybrid.Options{Logger: slog.New(&log), OnStateChange: seen.add})
		if err := w.redis.Set(counterKey(longTen, "secret-0"), "garbage"); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			n.Allow(fmt.Sprint("secret-", i), longTen)
		}
		time.Sleep(time.Second)
		n.net.down()
		n.Allow("secret-1", longTen)
		time.Sleep(3 * time.Second)
		n.net.up()
		time.Sleep(6 * time.Second)
		if s := n.Figures(); s.Quarantined == 0 || len(seen.modes()) < 4 {
			t.Errorf("too little has happened: %+v", s)
		}
		figures, err := json.Marshal(n.Figures())
		if err != nil {
			t.Fatal(err)
		}
		text := log.text() + fmt.Sprintf("%+v", seen.seen) + string(figures)
		if named := strings.Count(text, "secret-"); named != 1 || !strings.Contains(text, `key="secret-0"`) {
			t.Errorf("%d keys are named, want the broken one:\n%s", named, text)
		}
	})
}
