package httplimit

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // it reports the connections that fail by design
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

var slidingLog = limit.Must(limit.SlidingLog("log", 5, time.Minute))

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newLimiter returns a limiter whose time stands still.
func newLimiter(t testing.TB) (*local.Limiter, *clock.Manual) {
	t.Helper()
	c := clock.NewManual(noon)
	lim, err := local.New(local.Options{Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim, c
}

// memory is a limiter that answers from memory.
type memory interface {
	Take(key string, rule *limit.Rule, n int64) limit.Result
	TakeAll(checks ...limit.Check) limit.AllResult
	Peek(key string, rule *limit.Rule) limit.Result
	Refund(key string, rule *limit.Rule, n int64) (back int64)
	WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error
}

// protect wraps a handler, nil for one that answers "served".
func protect(t testing.TB, lim memory, o Options, h http.Handler, limits ...Limit) http.Handler {
	t.Helper()
	return protectBy(t, limit.WithContext(lim), o, h, limits...)
}

// protectBy is protect with any limiter.
func protectBy(t testing.TB, lim limit.ContextLimiter, o Options, h http.Handler, limits ...Limit) http.Handler {
	t.Helper()
	if h == nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })
	}
	m, err := NewAll(lim, o, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return m(h)
}

// server serves over real connections, which end with the test.
func server(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// answer is what a client has received.
type answer struct {
	*http.Response
	body string
}

// get sends a request with header lines "Name: value".
func get(t testing.TB, s *httptest.Server, path string, header ...string) answer {
	t.Helper()
	return send(t, s, http.MethodGet, path, header...)
}

func send(t testing.TB, s *httptest.Server, method, path string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequest(method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, string(body)}
}

// want checks the status and header lines "Name: value" of an answer; an empty value is for a
// field that must not be there.
func (a answer) want(t testing.TB, status int, header ...string) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("status %d, want %d: %s", a.StatusCode, status, a.body)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if got := strings.Join(a.Header.Values(name), ", "); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

func byKey(r *http.Request) string { return r.Header.Get("Key") }

func perMinute(name string, n int64) *limit.Rule {
	return limit.Must(limit.FixedWindow(name, n, time.Minute))
}
