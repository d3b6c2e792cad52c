package hybrid

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A line of the log has no attribute that says nothing, and says the unit of a time.
func TestLogLinesSayNothingEmpty(t *testing.T) { synctest.Test(t, testLogLines) }

func testLogLines(t *testing.T) {
	var text bytes.Buffer
	n := newNotifier(Options{Logger: slog.New(slog.NewJSONHandler(&text, nil))}, func() Stats { return Stats{} }, func() {})
	start := time.Unix(1_700_000_000, 0)
	n.deliverState(State{Mode: Degraded, Since: start, Reason: "refused", Err: errors.New("remote: dial")})
	time.Sleep(brief)
	n.logDue()
	n.deliverState(State{Mode: Synced, Since: start.Add(90 * time.Second)})
	n.deliverEvent(Event{Kind: EventRenamed})
	got := text.String()
	if strings.Contains(got, `""`) || strings.Contains(got, "null") || strings.Contains(got, "<nil>") {
		t.Errorf("an empty attribute: %s", got)
	}
	if err := (&UnavailableError{"refused", errors.New("remote: dial")}); err.Error() != "hybrid: redis is unavailable: refused: dial" {
		t.Error(err)
	}
	for _, want := range []string{`"reason":"refused","err":"dial"`, `"outage_seconds":90,`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s: %s", want, got)
		}
	}
}

// What callers get are errors of this package and of the client, and never of package remote.
func TestErrorsDoNotNameRemote(t *testing.T) {
	dial := errors.New("dial")
	for _, cause := range []error{dial, &limit.KeyError{Key: "k", Reason: "WRONGTYPE"}} {
		err := explain("set", fmt.Errorf("remote: %w", cause))
		if !errors.Is(err, cause) || strings.Contains(err.Error(), "remote") {
			t.Error(err)
		}
		var unavailable *UnavailableError
		if errors.As(err, &unavailable) && unavailable.Err != cause {
			t.Errorf("the cause is %v", unavailable.Err)
		}
	}
	if err := reconcile.Plain(nil); err != nil {
		t.Error(err)
	}
}
