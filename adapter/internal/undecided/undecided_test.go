package undecided

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One line a while of each kind, with what was skipped; a flood of what callers have to mend
// does not hide what the service has to.
func TestOneLineAWhile(t *testing.T) {
	var text bytes.Buffer
	now := clock.NewManual(time.Unix(1_700_000_000, 0))
	l := New(slog.New(slog.NewTextHandler(&text, nil)), now, "cannot be decided")
	lines := func() string {
		defer text.Reset()
		return text.String()
	}
	for range 100 {
		l.Note(t.Context(), false, errors.New("no key"))
	}
	l.Note(t.Context(), true, errors.New("no rule"))
	if got := lines(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=WARN msg="cannot be decided" err="no key"`) ||
		!strings.Contains(got, `level=ERROR msg="cannot be decided" err="no rule"`) {
		t.Errorf("%s", got)
	}
	now.Advance(Every)
	for range 3 {
		l.Note(t.Context(), false, errors.New("no key"))
	}
	if got := lines(); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "skipped=99\n") {
		t.Errorf("after a while: %s", got)
	}
	l.kinds[0].next = now.Now() + 2*Every // the clock is set back
	l.Note(t.Context(), false, errors.New("no key"))
	if got := lines(); strings.Count(got, "\n") != 1 {
		t.Errorf("after the clock was set back: %q", got)
	}
}

// late is a context whose deadline has passed, and whose timer has not fired yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

func TestOver(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	lasting, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{
		{t.Context(), nil}, {lasting, nil}, {ended, context.Canceled}, {late{t.Context()}, context.DeadlineExceeded}, {late{ended}, context.Canceled},
	} {
		if got := Over(c.ctx); !errors.Is(got, c.want) {
			t.Errorf("%v: %v, want %v", c.ctx, got, c.want)
		}
	}
}
