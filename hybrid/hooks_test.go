package hybrid_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

func TestOnStateChangeOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var seen changes
		var inside atomic.Int32
		n := w.synced(hybrid.Options{OnStateChange: func(s hybrid.State) {
			if inside.Add(1) > 1 {
				t.Error("two calls at a time")
			}
			defer inside.Add(-1)
			seen.add(s)
			time.Sleep(100 * time.Millisecond)
		}})
		n.Allow("k", longTen)
		var want = []hybrid.Mode{hybrid.Synced}
		for range 3 {
			time.Sleep(10 * time.Second)
			n.net.down()
			time.Sleep(10 * time.Second)
			n.net.up()
			want = append(want, hybrid.Degraded, hybrid.Resyncing, hybrid.Synced)
		}
		time.Sleep(10 * time.Second)
		if got := seen.modes(); !slices.Equal(got, want) {
			t.Errorf("told of %v, want %v", got, want)
		}
		for i, s := range seen.seen {
			if i > 0 && s.Since.Before(seen.seen[i-1].Since) {
				t.Errorf("change %d is older than the one before", i)
			}
			if (s.Reason == "") != (s.Mode == hybrid.Synced) {
				t.Errorf("%v has the reason %q", s.Mode, s.Reason)
			}
		}
	})
}

// A hook may use the limiter.
//
// Fault 62: the hook uses the limiter.
func TestHookReenters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var l atomic.Pointer[hybrid.Limiter]
		var called atomic.Int32
		n := w.node(hybrid.Options{OnStateChange: func(s hybrid.State) {
			n := l.Load()
			if n == nil {
				return
			}
			n.Allow("hook", longTen)
			n.Peek("hook", longTen)
			_, _ = n.State(), n.Stats()
			if err := n.Flush(bg); err != nil {
				var unavailable *hybrid.UnavailableError
				if !errors.As(err, &unavailable) {
					t.Errorf("flush from the hook: %v", err)
				}
			}
			called.Add(1)
		}}, nil)
		l.Store(n.Limiter)
		time.Sleep(time.Second)
		n.net.down()
		time.Sleep(5 * time.Second)
		n.net.up()
		time.Sleep(10 * time.Second)
		wantMode(t, n.Limiter, hybrid.Synced)
		if c := called.Load(); c < 3 {
			t.Errorf("the hook returned %d times", c)
		}
	})
}

// Fault 61: the hook panics each time, and the limiter lives on.
func TestHookPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var calls atomic.Int32
		n := w.synced(hybrid.Options{OnStateChange: func(hybrid.State) {
			calls.Add(1)
			panic("a hook of the user")
		}})
		n.Allow("k", longTen)
		for range 3 {
			n.net.down()
			time.Sleep(5 * time.Second)
			n.net.up()
			time.Sleep(7 * time.Second)
			wantMode(t, n.Limiter, hybrid.Synced)
		}
		n.Allow("k", longTen)
		time.Sleep(time.Second)
		w.wantUsed("k", longTen, 2)
		if got := n.Stats().HookPanics; got != uint64(calls.Load()) || got != 10 {
			t.Errorf("%d panics counted of %d, want 10", got, calls.Load())
		}
	})
}

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
		if got := n.Stats().HookPanics; got != 1 {
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

// What a limiter says about itself does not grow with its keys: a program that turns
// Stats into metrics gets a bounded number of series, and a log line never holds
// what a client has sent.
//
// Fault 63: Stats are plain numbers, by rule at most; neither states nor log lines name a key, but the one that is broken.
func TestMetricsHaveNoKeys(t *testing.T) {
	var numbers func(reflect.Type)
	numbers = func(typ reflect.Type) {
		for f := range typ.Fields() {
			switch f.Type {
			case reflect.TypeFor[time.Time](), reflect.TypeFor[map[string]uint64](): // of the words in TestFailuresByReason
				continue
			case reflect.TypeFor[[]hybrid.RuleStats](): // of so many names as in package tally
				numbers(reflect.TypeFor[hybrid.RuleStats]())
				continue
			}
			switch f.Type.Kind() {
			case reflect.Int64, reflect.Uint64:
			case reflect.Array:
				if f.Type.Elem().Kind() != reflect.Uint64 {
					t.Errorf("%v.%s is a %v", typ, f.Name, f.Type)
				}
			case reflect.Struct:
				numbers(f.Type)
			case reflect.String: // the name of a rule
				if typ != reflect.TypeFor[hybrid.RuleStats]() || f.Name != "Name" {
					t.Errorf("%v.%s is a %v", typ, f.Name, f.Type)
				}
			default:
				t.Errorf("%v.%s is a %v", typ, f.Name, f.Type)
			}
		}
	}
	numbers(reflect.TypeFor[hybrid.Stats]())
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
		if s := n.Stats(); s.Quarantined == 0 || len(seen.modes()) < 4 {
			t.Errorf("too little has happened: %+v", s)
		}
		figures, err := json.Marshal(n.Stats())
		if err != nil {
			t.Fatal(err)
		}
		text := log.text() + fmt.Sprintf("%+v", seen.seen) + string(figures)
		if named := strings.Count(text, "secret-"); named != 1 || !strings.Contains(text, `key="secret-0"`) {
			t.Errorf("%d keys are named, want the broken one:\n%s", named, text)
		}
	})
}
