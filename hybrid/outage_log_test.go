package hybrid

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// noted is a notifier in a bubble, with what it has logged.
type noted struct {
	*notifier

	mu    sync.Mutex // protects what follows
	stats inside.Figures
	buf   bytes.Buffer
}

func (n *noted) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.Write(b)
}

// count adds checks that the fallback has decided.
func (n *noted) count(allowed, denied uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Allowed.Degraded += allowed
	n.stats.Denied.Degraded += denied
	n.stats.Denied.Synced += 9 // of other shards
}

// mismatch sets the number of other layouts.
func (n *noted) mismatch(others int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Mismatches = others
}

// figures returns what was counted.
func (n *noted) figures() inside.Figures {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// inNotifierBubble runs test with a notifier that is synced.
func inNotifierBubble(t *testing.T, o Options, test func(t *testing.T, n *noted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := new(noted)
		o.Logger = slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		n.notifier = newNotifier(o, n.figures, func() { t.Error("a panic") })
		go n.run()
		n.is(Synced, "")
		n.lines()
		test(t, n)
		n.stop()
		synctest.Wait()
	})
}

// is makes the state change.
func (n *noted) is(m Mode, reason string) {
	n.changed(State{Mode: m, Reason: reason, Since: time.Now(), Nodes: 1})
	synctest.Wait()
}

// outage is an outage that has ended after d.
func (n *noted) outage(d time.Duration, reason string) {
	n.is(Degraded, reason)
	time.Sleep(d)
	n.is(Resyncing, "redis answers again")
	n.is(Synced, "")
}

// lines returns what was logged since the last call.
func (n *noted) lines() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	text := strings.TrimSpace(n.buf.String())
	if n.buf.Reset(); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// wantLines fails unless each line that was logged contains the text in its place.
func (n *noted) wantLines(t *testing.T, when string, want ...string) {
	t.Helper()
	got := n.lines()
	if len(got) != len(want) || !slices.EqualFunc(got, want, strings.Contains) {
		t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Stalls of less than a second share a line a minute.
func TestBriefOutagesShareALine(t *testing.T) {
	const sums = "outage_seconds=2.2 outages=5 admitted=0"
	inNotifierBubble(t, Options{}, func(t *testing.T, n *noted) {
		for range 3 {
			for _, ms := range []time.Duration{43, 123, 456, 678, 901} {
				n.outage(ms*time.Millisecond, "timeout")
				time.Sleep(time.Second)
			}
			n.wantLines(t, "at once")
			time.Sleep(time.Minute)
			n.wantLines(t, "after a minute", `level=WARN msg="rate limiter degraded briefly" reason=timeout `+sums)
		}
		time.Sleep(time.Hour)
		n.wantLines(t, "when all is well")

		n.outage(300*time.Millisecond, "closed")
		n.outage(time.Second+234567891, "refused")
		n.wantLines(t, "a longer one", `level=WARN msg="rate limiter degraded" reason=refused`, `msg="rate limiter resyncing"`,
			`level=INFO msg="rate limiter synced" nodes=1 shards_down=0 outage_seconds=1.5 outages=2 `)
		time.Sleep(time.Hour)
		n.wantLines(t, "nothing is said twice")

		n.outage(time.Millisecond, "noauth")
		n.wantLines(t, "an operator must act", `level=ERROR msg="rate limiter degraded" reason=noauth`, `msg="rate limiter resyncing"`, `msg="rate limiter synced"`)

		n.outage(time.Millisecond, "closed")
		n.stop()
		n.wantLines(t, "the limiter is closed", `msg="rate limiter degraded briefly" reason=closed outage_seconds=0.001 outages=1`)
		n.done = make(chan struct{}) // closed again
	})
}

// An outage is not overlooked because it begins with another failure, or goes up and down.
func TestOutageThatIsNotBrief(t *testing.T) {
	inNotifierBubble(t, Options{}, func(t *testing.T, n *noted) {
		n.is(Degraded, "timeout")
		time.Sleep(brief / 2)
		n.wantLines(t, "brief until now")
		n.is(Degraded, "wrongpass")
		n.wantLines(t, "an operator must act", `level=ERROR msg="rate limiter degraded" reason=wrongpass`)
		n.is(Synced, "")
		n.wantLines(t, "the end", `msg="rate limiter synced"`)
		time.Sleep(time.Hour)

		for range 5 { // without an end
			n.is(Degraded, "timeout")
			time.Sleep(brief / 4)
			n.is(Resyncing, "redis answers again")
			n.is(Degraded, "closed")
		}
		n.wantLines(t, "it goes up and down", `level=WARN msg="rate limiter degraded" reason=`, `msg="rate limiter resyncing"`)
		n.is(Synced, "")
		n.wantLines(t, "the end", `msg="rate limiter synced" nodes=1 shards_down=0 outage_seconds=1.2 outages=1`)
	})
}

// A fault that lasts is said every five minutes: which checks were decided alone since, and what that
// means for the limits.
//
// Fault 113: at once and every five minutes.
func TestFaultThatLastsIsRepeated(t *testing.T) {
	for reason, level := range map[string]string{
		"noauth": "ERROR", "wrongpass": "ERROR", "noperm": "ERROR", "denied": "ERROR", "crossslot": "ERROR", "unsupported": "ERROR",
		"refused": "WARN", "dns": "WARN", "error": "WARN", // a wrong address, a wrong certificate
	} {
		inNotifierBubble(t, Options{}, func(t *testing.T, n *noted) {
			n.count(7, 0) // in an earlier outage
			n.is(Degraded, reason)
			time.Sleep(brief)
			first := fmt.Sprintf(`level=%s msg="rate limiter degraded" reason=%s nodes=1 shards_down=0 fallback=fair-share effect="this node admits the whole limit by itself`, level, reason)
			n.wantLines(t, "at once", first)
			time.Sleep(remindEvery - time.Minute) // since the first line, which may have come a second late
			for range 3 {
				n.count(5, 4)
				n.wantLines(t, "before five minutes")
				time.Sleep(time.Minute)
				n.wantLines(t, "after five minutes", first)
				time.Sleep(remindEvery - time.Minute)
			}
			n.is(Synced, "")
			n.lines()
			time.Sleep(time.Hour)
			n.wantLines(t, "mended")
		})
	}
	inNotifierBubble(t, Options{}, func(t *testing.T, n *noted) {
		n.count(7, 0)
		n.is(Degraded, "wrongpass")
		n.count(1000, 0)
		time.Sleep(remindEvery + time.Minute)
		n.count(0, 20)
		time.Sleep(2 * remindEvery)
		n.wantLines(t, "checks", "", "lasting_seconds=300 checks=1000", "lasting_seconds=600 checks=20", "lasting_seconds=900 checks=0")
	})
}

// So are notices that do not arrive, and processes with which no limit is shared.
func TestEventThatLastsIsRepeated(t *testing.T) {
	inNotifierBubble(t, Options{}, func(t *testing.T, n *noted) {
		down := Event{Kind: EventNoticesDown, Reason: "noperm", Err: refusal("NOPERM x")}
		n.changed(State{Mode: Synced, NoticesDown: "noperm"})
		n.happened(down)
		n.wantLines(t, "at once", `level=ERROR msg="rate limiter: notices-down" reason=noperm`)
		n.happened(Event{Kind: EventRenamed, Reason: "x"})
		n.happened(Event{Kind: EventDataLost, Reason: "x"})
		n.lines()
		time.Sleep(2 * remindEvery)
		n.wantLines(t, "after ten minutes", `level=ERROR msg="rate limiter: notices-down" reason=noperm`, `level=ERROR msg="rate limiter: notices-down" reason=noperm`)
		n.changed(State{Mode: Synced})
		n.mismatch(1)
		n.happened(Event{Kind: EventMismatch, Reason: "shares no limits"})
		n.lines()
		time.Sleep(2 * remindEvery)
		n.wantLines(t, "the other", "layout-mismatch", "layout-mismatch")
		n.mismatch(0)
		time.Sleep(time.Hour)
		n.wantLines(t, "mended")
	})
}

// A duration in a log line has two digits.
func TestDurationsInLogsHaveTwoDigits(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 0.043123456: 0.043, 0.999: 1, 13.250468347: 13, 300.9: 300, 86399: 86000, -1.26: -1.3} {
		if got := twoDigits(v); got != want {
			t.Errorf("%v of %v, want %v", got, v, want)
		}
	}
}
