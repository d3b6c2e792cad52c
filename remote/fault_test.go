package remote

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// wantClass checks how an error is sorted.
func wantClass(t testing.TB, err error, class Class, reason string) {
	t.Helper()
	if c, r := Classify(err); c != class || r != reason {
		t.Errorf("%v: %v %q, want %v %q", err, c, r, class, reason)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "remote: ") {
		t.Errorf("no prefix: %v", err)
	}
}

func (b *backend) do(args ...any) {
	b.t.Helper()
	if err := b.rdb.Do(ctx, args...).Err(); err != nil {
		b.t.Fatalf("%v: %v", args, err)
	}
}

// poll waits for a condition on a real server.
func poll(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("the condition has not come true within 10 s")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func isKeyError(err error) bool {
	var key *limit.KeyError
	return errors.As(err, &key)
}

func TestRefusedAndFrozen(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr())
	l := limit.Must(New(rdb, Options{}))
	rule := funnel(t, 10, 1, time.Hour)
	take(t, l, "k", rule, 1)
	s.FreezeOrSkip(t)
	start := time.Now()
	_, err := l.Take(ctx, "k", rule, 1)
	wantClass(t, err, ClassUnavailable, "timeout")
	if d := time.Since(start); d < 200*time.Millisecond || d > 2*time.Second {
		t.Errorf("a call to a frozen Redis took %v, its deadline is %v", d, 250*time.Millisecond)
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	poll(t, func() bool { _, err := l.Peek(ctx, "k", rule); return err == nil })
	s.Kill()
	poll(t, func() bool { // the first call finds the old connection closed
		_, err = l.Take(ctx, "k", rule, 1)
		_, reason := Classify(err)
		return reason == "refused"
	})
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	poll(t, func() bool { _, err := l.Peek(ctx, "k", rule); return err == nil })
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = l.Take(canceled, "k", rule, 1)
	wantClass(t, err, ClassUnavailable, "canceled")
}

// Some Redis answers something else: an error, and no panic.
func TestUnexpectedReplies(t *testing.T) {
	b, rule := onMini(t), funnel(t, 10, 1, time.Hour)
	for _, answer := range []any{nil, "x", int64(1), []any{}, []any{"a"}, []any{"2", "1", "1"}, []any{"e", int64(3)}, []any{[]any{}}} {
		if _, err := b.lying(answer).Take(ctx, "k", rule, 1); !errors.Is(err, ErrBadReply) {
			t.Errorf("%v: %v", answer, err)
		}
	}
}
