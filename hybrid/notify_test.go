package hybrid

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// refusal is an error that Redis has answered with.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

// A node without notices for want of a permission is an error, another a warning.
func TestNoticesDownForWantOfAPermission(t *testing.T) {
	for err, want := range map[error]string{refusal("NOPERM x"): "level=ERROR", errors.New("broken"): "level=WARN", nil: "level=WARN"} {
		hint := `hint="Redis refuses this program: the user may not use what`
		var log bytes.Buffer
		n := newNotifier(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func() inside.Figures { return inside.Figures{} }, func() {})
		n.deliverEvent(Event{Kind: EventNoticesDown, Reason: "x", Err: err})
		if !bytes.Contains(log.Bytes(), []byte(want)) || bytes.Contains(log.Bytes(), []byte(hint)) != (want == "level=ERROR") {
			t.Errorf("%v: %q, want %s", err, log.Bytes(), want)
		}
	}
}

// Without a logger the default one of slog gets what somebody has to know: warnings, errors and the
// end of an outage, and not that all is well. It may be set after the limiter was made.
func TestDefaultLogger(t *testing.T) { synctest.Test(t, testDefaultLogger) }

func testDefaultLogger(t *testing.T) {
	n := newNotifier(Options{Fallback: FullLimit}, func() inside.Figures { return inside.Figures{} }, func() {})
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(before)
	at := func(m Mode, reason string) State { return State{Mode: m, Reason: reason, Since: time.Unix(1, 0)} }
	for _, c := range []struct {
		do   func()
		want string
	}{
		{func() { n.deliverState(at(Synced, "")) }, ""},
		{func() { n.deliverState(at(Degraded, "timeout")) }, "level=WARN msg=\"rate limiter degraded\" reason=timeout nodes=0 shards_down=0 fallback=full-limit effect=\"this node admits the whole limit by itself\"\n"},
		{func() { n.deliverState(at(Resyncing, "")) }, ""},
		{func() { n.deliverState(at(Synced, "")) }, "level=INFO msg=\"rate limiter synced\" nodes=0 shards_down=0 outage_seconds=0"},
		{func() { n.deliverState(at(Degraded, "noauth")) }, "level=ERROR"},
		{func() { n.deliverEvent(Event{Kind: EventInvalid, Reason: "a nil rule"}) }, "level=WARN"},
		{func() { n.closed(t.Context(), 3, nil) }, "level=ERROR"},
	} {
		log.Reset()
		c.do()
		time.Sleep(brief)
		n.logDue()
		if text := log.String(); (c.want == "") != (text == "") || !bytes.Contains(log.Bytes(), []byte(c.want)) {
			t.Errorf("%q, want %q", text, c.want)
		}
	}
}
