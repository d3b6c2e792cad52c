package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// ledger is a limiter that remembers what was booked, and fails if it is told to.
type ledger struct {
	limit.ContextLimiter
	err error

	mu      sync.Mutex
	booked  []string // "charge k 3"
	ctx     context.Context
	invalid int
}

func newLedger(lim memory) *ledger { return &ledger{ContextLimiter: limit.WithContext(lim)} }

func (l *ledger) note(ctx context.Context, what, key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.booked = ctx, append(l.booked, fmt.Sprint(what, " ", key, " ", n))
}

func (l *ledger) Refund(ctx context.Context, key string, rule *limit.Rule, n int64) (int64, error) {
	if l.note(ctx, "refund", key, n); l.err != nil {
		return 0, l.err
	}
	return l.ContextLimiter.Refund(ctx, key, rule, n)
}

func (l *ledger) Charge(ctx context.Context, key string, rule *limit.Rule, n int64) (int64, error) {
	if l.note(ctx, "charge", key, n); l.err != nil {
		return 0, l.err
	}
	return l.ContextLimiter.Charge(ctx, key, rule, n)
}

// Inside makes the limiter count what is invalid, as one of package hybrid does.
func (l *ledger) Inside(inside.Key) inside.View { return insideOf{l: l} }

type insideOf struct {
	inside.View
	l *ledger
}

func (c insideOf) CountInvalid(*limit.Rule) { c.l.invalid++ }

func (insideOf) CountExempt(string) {}

// byCount settles by what the handler has counted.
func byCount(_ *http.Request, a Answer) int64 { return a.Counted }

// serveOnce serves a request of key "k", which may panic, without a network.
func serveOnce(h http.Handler, r *http.Request) (w *httptest.ResponseRecorder, panicked any) {
	w = httptest.NewRecorder()
	r.Header.Set("Key", "k")
	defer func() { panicked = recover() }()
	h.ServeHTTP(w, r)
	return w, nil
}

func ask() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

// What a request has cost is what counts in the end, whatever the estimate was. What a goroutine counts
// after that is not booked, and the log says so.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		cost   int64
		booked string
		left   int64 // of 100
	}{
		"more": {25, "[charge k 15]", 75}, "fewer": {4, "[refund k 6]", 96}, "as many": {10, "[]", 90}, "nothing": {0, "[refund k 10]", 100},
		"more than the limit": {150, "[charge k 140]", 0}, "the most": {math.MaxInt64, fmt.Sprintf("[charge k %d]", int64(math.MaxInt64-10)), 0},
	} {
		for _, how := range []string{"returns", "panics", "has lost its client"} {
			lim, _ := newLimiter(t)
			l, rule := newLedger(lim), perMinute("tokens", 100)
			ctx, leave := context.WithCancel(t.Context())
			var kept context.Context
			var text bytes.Buffer
			h := protectBy(t, l, Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				kept = r.Context()
				for n := c.cost; n > 0; n -= c.cost - c.cost/2 { // as it streams
					Count(r.Context(), min(n, c.cost-c.cost/2))
				}
				switch how {
				case "panics":
					panic(http.ErrAbortHandler)
				case "has lost its client":
					leave()
				}
			}), Limit{Rule: rule, Key: By(byKey), Cost: func(*http.Request) int64 { return 10 }, Settle: func(_ *http.Request, a Answer) int64 {
				if status := map[bool]int{true: 500, false: 200}[how == "panics"]; a.Status != status || a.Taken != 10 {
					t.Errorf("%s: %+v", how, a)
				}
				return a.Counted
			}})
			_, panicked := serveOnce(h, ask().WithContext(ctx))
			leave()
			Count(kept, 4)
			if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "4 units were counted after the call had ended") {
				t.Errorf("%s: the log is %q", name, got)
			}
			if left := lim.Peek("k", rule).Remaining; fmt.Sprint(l.booked) != c.booked || left != c.left || (panicked != nil) != (how == "panics") {
				t.Errorf("%s, the handler %s: booked %v, %d left, panic %v", name, how, l.booked, left, panicked)
			}
			if l.ctx != nil && l.ctx.Err() != nil {
				t.Errorf("%s: booked with %v", name, l.ctx.Err())
			}
			if over := lim.Take("k", rule, 1).Allowed == (c.left == 0); over {
				t.Errorf("%s: the next request is decided by another cost", name)
			}
		}
	}
}

// Bytes are those of the body, however the handler writes them. Header is what it has sent.
func TestSettleByBytes(t *testing.T) {
	const size = 3000
	text := strings.Repeat("x", size)
	for name, write := range map[string]func(w http.ResponseWriter){
		"write":  func(w http.ResponseWriter) { w.Write([]byte(text)) },
		"string": func(w http.ResponseWriter) { io.WriteString(w, text) },
		"copy":   func(w http.ResponseWriter) { io.Copy(w, io.LimitReader(strings.NewReader(text), size)) },
		"stream": func(w http.ResponseWriter) {
			for range size / 100 {
				io.WriteString(w, text[:100])
				w.(http.Flusher).Flush()
			}
		},
	} {
		lim, c := newLimiter(t)
		rule := perMinute("bytes", 1_000_000)
		var got Answer
		h := protect(t, lim, Options{Clock: c}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.Advance(time.Millisecond)
			w.Header().Set("Cost", name)
			w.WriteHeader(http.StatusAccepted)
			write(w)
		}), Limit{Rule: rule, Key: By(byKey), Settle: func(_ *http.Request, a Answer) int64 { got = a; return a.Bytes }})
		w, _ := serveOnce(h, ask())
		if w.Body.Len() != size || got.Bytes != size || got.Status != 202 || got.Header.Get("Cost") != name || got.Took != time.Millisecond || lim.Peek("k", rule).Remaining != 1_000_000-size {
			t.Errorf("%s: %d bytes, %+v", name, w.Body.Len(), got)
		}
	}
}

// limitedTo waits until so many units of a key are left.
func limitedTo(t *testing.T, lim *local.Limiter, key string, rule *limit.Rule, left int64) {
	t.Helper()
	until(t, func() bool { return lim.Peek(key, rule).Remaining == left }, func() string {
		return fmt.Sprintf("%s has %d left, want %d", key, lim.Peek(key, rule).Remaining, left)
	})
}

// A connection that the handler takes over is settled by what the handler counts.
func TestSettleOfAHijackedConnection(t *testing.T) {
	lim, _ := newLimiter(t)
	rule := perMinute("tokens", 100)
	settled := make(chan Answer, 1)
	s := server(t, protect(t, lim, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		Count(r.Context(), 3)
		fmt.Fprint(c, "HTTP/1.0 204 No Content\r\n\r\n")
	}), Limit{Rule: rule, Key: By(byKey), Settle: func(_ *http.Request, a Answer) int64 { settled <- a; return a.Counted }}))
	get(t, s, "/", "Key: k").want(t, 204)
	if a := <-settled; a.Status != 101 || a.Bytes != 0 || a.Counted != 3 {
		t.Errorf("%+v", a)
	}
	limitedTo(t, lim, "k", rule, 97)
}

// Each limit has its own unit. One that a request is not limited by is not asked.
func TestSettleOfSeveralLimits(t *testing.T) {
	lim, _ := newLimiter(t)
	l := newLedger(lim)
	calls, tokens, size := perMinute("calls", 10), perMinute("tokens", 100), perMinute("bytes", 1000)
	key := func(name string) KeyFunc { return By(func(*http.Request) string { return name }) }
	never := func(*http.Request, Answer) int64 { t.Error("a limit that was not asked is settled"); return 0 }
	h := protectBy(t, l, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Count(r.Context(), 40)
		io.WriteString(w, "123456")
	}),
		Limit{RuleFor: func(*http.Request) *limit.Rule { return limit.Unlimited() }, Key: key("staff"), Settle: never},
		Limit{Rule: calls, Key: key("calls")},
		Limit{Rule: tokens, Key: key("tokens"), Cost: func(*http.Request) int64 { return 50 }, Settle: byCount},
		Limit{Rule: size, Key: key("bytes"), Settle: func(_ *http.Request, a Answer) int64 { return a.Bytes }},
	)
	if w, _ := serveOnce(h, ask()); w.Code != 200 || fmt.Sprint(l.booked) != "[refund tokens 10 charge bytes 5]" {
		t.Errorf("%d, booked %v", w.Code, l.booked)
	}
	lim.Take("tokens", tokens, 60)
	l.booked = nil
	if w, _ := serveOnce(h, ask()); w.Code != 429 || l.booked != nil {
		t.Errorf("a refused request: %d, booked %v", w.Code, l.booked)
	}
	only := protectBy(t, l, Options{}, nil, Limit{RuleFor: func(*http.Request) *limit.Rule { return limit.Unlimited() }, Key: key("staff"), Settle: never})
	if w, _ := serveOnce(only, ask()); w.Code != 200 || l.booked != nil {
		t.Errorf("an unlimited request: %d, booked %v", w.Code, l.booked)
	}
}

// What RefundOn hands back is handed back once, and nobody asks what it has cost.
func TestSettleAndRefundOn(t *testing.T) {
	lim, _ := newLimiter(t)
	l := newLedger(lim)
	asked := 0
	h := protectBy(t, l, Options{RefundOn: func(status int) bool { return status >= 500 }}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Count(r.Context(), 7)
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	}), Limit{Rule: perMinute("tokens", 100), Key: By(byKey), Cost: func(*http.Request) int64 { return 5 }, Settle: func(_ *http.Request, a Answer) int64 {
		asked++
		return a.Counted
	}})
	for _, path := range []string{"/503", "/404"} {
		serveOnce(h, httptest.NewRequest(http.MethodGet, path, nil))
	}
	if fmt.Sprint(l.booked) != "[refund k 5 charge k 2]" || asked != 1 {
		t.Errorf("booked %v, asked %d times", l.booked, asked)
	}
}

// A dry run is settled as long as it would admit: what it would have refused has taken nothing.
func TestSettleOfDryRuns(t *testing.T) {
	lim, _ := newLimiter(t)
	l := newLedger(lim)
	dry := perMinute("new", 3).DryRun()
	h := protectBy(t, l, Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Count(r.Context(), 2) }),
		Limit{Rule: dry, Key: By(byKey), Settle: byCount}, Limit{Rule: perMinute("old", 100), Key: By(func(*http.Request) string { return "old" }), Settle: byCount})
	for range 3 {
		if w, _ := serveOnce(h, ask()); w.Code != 200 {
			t.Errorf("%d", w.Code)
		}
	}
	// 2 and 4 units of 3: the third request would have been refused.
	if got := fmt.Sprint(l.booked); got != "[charge k 1 charge old 1 charge k 1 charge old 1 charge old 1]" {
		t.Errorf("booked %s", got)
	}
}

// A negative cost books nothing. That and an error of the limiter are in the log, a line a while.
func TestSettleFails(t *testing.T) {
	for name, c := range map[string]struct {
		cost    int64
		err     error
		booked  string
		invalid int
		line    string
	}{
		"negative":      {-1, nil, "[]", 3, "Settle returned: " + limit.ErrInvalidN.Error() + ": -1"},
		"smallest":      {math.MinInt64, nil, "[]", 3, limit.ErrInvalidN.Error()},
		"charge fails":  {3, errAway, "[charge k 2 charge k 2 charge k 2]", 0, errAway.Error()},
		"refund fails":  {0, errAway, "[refund k 1 refund k 1 refund k 1]", 0, errAway.Error()},
		"nothing fails": {1, errAway, "[]", 0, ""},
	} {
		var text bytes.Buffer
		lim, _ := newLimiter(t)
		l, rule := newLedger(lim), perMinute("r", 10)
		l.err = c.err
		h := protectBy(t, l, Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}, nil,
			Limit{Rule: rule, Key: By(byKey), Settle: func(*http.Request, Answer) int64 { return c.cost }})
		for range 3 {
			if w, _ := serveOnce(h, ask()); w.Body.String() != "served" {
				t.Errorf("%s: %d", name, w.Code)
			}
		}
		if left := lim.Peek("k", rule).Remaining; fmt.Sprint(l.booked) != c.booked || l.invalid != c.invalid || left != 7 {
			t.Errorf("%s: booked %v, %d invalid, %d left", name, l.booked, l.invalid, left)
		}
		lines, want := strings.Count(text.String(), "\n"), 1
		if c.line == "" {
			want = 0
		}
		if got := text.String(); lines != want || want > 0 && (!strings.Contains(got, "level=ERROR") || !strings.Contains(got, c.line)) {
			t.Errorf("%s: the log is %q", name, got)
		}
	}
}
