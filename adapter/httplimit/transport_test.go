package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

var toHost = By(func(r *http.Request) string { return r.URL.Host })

var tenPerSecond = limit.Must(limit.TokenBucket("upstream", 10, time.Second, 10))

// upstream answers without a network.
type upstream func(r *http.Request) *http.Response

func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	resp := u(r)
	resp.Request = r
	return resp, nil
}

// says is an upstream's answer with header lines "Name: value".
func says(status int, lines ...string) *http.Response {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
}

func newTransport(t testing.TB, lim memory, rule *limit.Rule, o TransportOptions) *Transport {
	t.Helper()
	tr, err := NewTransport(limit.WithContext(lim), rule, toHost, o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// request returns one whose body says whether it was closed.
func request(ctx context.Context, url string) (*http.Request, *closer) {
	body := &closer{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		panic(err)
	}
	return r, body
}

type closer struct {
	io.Reader
	closed atomic.Bool
}

func (c *closer) Close() error { c.closed.Store(true); return nil }

// Requests go out as the rule admits them, each host by itself, and none is lost.
func TestTransportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := local.New(local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		var sent []time.Duration
		start := time.Now()
		tr := newTransport(t, lim, tenPerSecond, TransportOptions{Base: upstream(func(*http.Request) *http.Response {
			sent = append(sent, time.Since(start).Round(time.Millisecond))
			return says(200)
		})})
		for range 15 {
			r, _ := request(t.Context(), "http://a.example/")
			if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 200 {
				t.Fatal(err)
			}
		}
		if len(sent) != 15 || sent[9] != 0 || sent[10] != 100*time.Millisecond || sent[14] != 500*time.Millisecond {
			t.Errorf("sent at %v", sent)
		}
		r, _ := request(t.Context(), "http://b.example/")
		if tr.RoundTrip(r); sent[15] != 500*time.Millisecond {
			t.Errorf("another host waited: %v", sent[15])
		}
	})
}

// A request that is not sent costs nothing, does not reach the upstream, and its body is closed.
func TestTransportRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := local.New(local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		one := limit.Must(limit.TokenBucket("one", 1, time.Minute, 1))
		calls := 0
		base := upstream(func(*http.Request) *http.Response { calls++; return says(200) })
		lim.Take("a.example", one, 1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for name, c := range map[string]struct {
			o   TransportOptions
			ctx context.Context
			url string
			is  func(error) bool
		}{
			"at once": {TransportOptions{NoWait: true}, t.Context(), "http://a.example/", func(err error) bool {
				var e *RefusedError
				return errors.As(err, &e) && e.Key == "a.example" && e.Rule == one && e.Result.RetryAfter == time.Minute && strings.Contains(e.Error(), "1m0s")
			}},
			"a context that ends too soon": {TransportOptions{}, soon, "http://a.example/", isWaitError},
			"a wait that is too long":      {TransportOptions{MaxWait: time.Second}, t.Context(), "http://a.example/", isWaitError},
			"a context that has ended":     {TransportOptions{}, ended, "http://b.example/", func(err error) bool { return errors.Is(err, context.Canceled) }},
			"at once, ended":               {TransportOptions{NoWait: true}, ended, "http://b.example/", func(err error) bool { return errors.Is(err, context.Canceled) }},
			"no key":                       {TransportOptions{}, t.Context(), "/", func(err error) bool { return errors.Is(err, ErrNoKey) }},
		} {
			c.o.Base = base
			began := time.Now()
			r, body := request(c.ctx, c.url)
			_, err := (&http.Client{Transport: newTransport(t, lim, one, c.o)}).Do(r)
			if name == "no key" { // http.Client itself refuses such a URL
				r, body = request(c.ctx, c.url)
				_, err = newTransport(t, lim, one, c.o).RoundTrip(r)
			}
			if !c.is(err) || !body.closed.Load() || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v, body closed %t", name, err, time.Since(began), body.closed.Load())
			}
		}
		// A context that ends while the request waits.
		canceled, stop2 := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop2)
		r, body := request(canceled, "http://a.example/")
		if _, err := newTransport(t, lim, one, TransportOptions{Base: base}).RoundTrip(r); !errors.Is(err, context.Canceled) || !body.closed.Load() {
			t.Errorf("%v, body closed %t", err, body.closed.Load())
		}
		if res := lim.Peek("b.example", one); calls != 0 || res.Remaining != 1 {
			t.Errorf("%d calls, %+v", calls, res)
		}
		time.Sleep(time.Minute)
		r, _ = request(t.Context(), "http://a.example/")
		if resp, err := newTransport(t, lim, one, TransportOptions{Base: base, NoWait: true}).RoundTrip(r); err != nil || resp.StatusCode != 200 {
			t.Error("what was not sent has cost something: ", err)
		}
	})
}

// neither returns no response and no error.
type neither struct{}

func (neither) RoundTrip(*http.Request) (*http.Response, error) { return nil, nil }

func isWaitError(err error) bool {
	var e *limit.WaitError
	return errors.As(err, &e) && errors.Is(err, context.DeadlineExceeded)
}

// What an upstream says holds requests back for exactly as long, within bounds, and never
// lets more pass than the rule.
func TestTransportFollows(t *testing.T) {
	date := func(d time.Duration) string { return noon.Add(d).Format(http.TimeFormat) }
	in := func(d time.Duration, layout string) string { return noon.Add(d).Format(layout) }
	epoch := func(in int64) string { return strconv.FormatInt(noon.Unix()+in, 10) }
	const most = time.Minute
	for _, c := range []struct {
		name   string
		status int
		lines  []string
		left   int64         // of 10, after one request
		wait   time.Duration // until the next
	}{
		{"nothing", 200, nil, 9, 0},
		{"seconds", 429, []string{"Retry-After: 7"}, 0, 7 * time.Second},
		{"seconds of another status", 301, []string{"Retry-After: 7"}, 9, 0},
		{"none", 429, []string{"Retry-After: 0"}, 0, 100 * time.Millisecond},
		{"none, and a reset", 429, []string{"Retry-After: 0", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 8"}, 0, 8 * time.Second},
		{"no milliseconds, and seconds", 429, []string{"Retry-After-Ms: 0", "Retry-After: 8"}, 0, 8 * time.Second},
		{"overloaded", 529, []string{"Retry-After: 8"}, 0, 8 * time.Second},
		{"seconds since 1970", 429, []string{"Retry-After: " + epoch(8)}, 0, 8 * time.Second},
		{"infinite milliseconds", 429, []string{"Retry-After-Ms: Inf", "Retry-After: 8"}, 0, 8 * time.Second},
		{"Docker Hub", 200, []string{"RateLimit-Limit: 100;w=21600", "RateLimit-Remaining: 4;w=21600"}, 4, 0},
		{"thousands", 200, []string{"X-RateLimit-Remaining: 1,000"}, 9, 0},
		{"Linear", 200, []string{"X-RateLimit-Requests-Remaining: 0", "X-RateLimit-Requests-Reset: " + epoch(8) + "000"}, 0, 8 * time.Second},
		{"Cerebras", 200, []string{"X-RateLimit-Remaining-Requests-Day: 5", "X-RateLimit-Remaining-Tokens-Minute: 0", "X-RateLimit-Reset-Tokens-Minute: 7.5"}, 0, 8 * time.Second},
		{"a date", 429, []string{"Retry-After: " + date(30*time.Second)}, 0, 30 * time.Second},
		{"a date by a clock that is wrong", 429, []string{"Retry-After: " + date(time.Hour+5*time.Second), "Date: " + date(time.Hour)}, 0, 5 * time.Second},
		{"a date that has passed", 429, []string{"Retry-After: " + date(-time.Second)}, 0, 100 * time.Millisecond},
		{"seconds that no number holds", 429, []string{"Retry-After: 99999999999999999999999999"}, 0, most},
		{"negative", 429, []string{"Retry-After: -5"}, 0, 100 * time.Millisecond},
		{"a fraction", 429, []string{"Retry-After: 30.5"}, 0, 31 * time.Second},
		{"several", 429, []string{"Retry-After: 5, soon", "Retry-After: 30", "Retry-After: 7"}, 0, 30 * time.Second},
		{"a unit", 429, []string{"Retry-After: 30s"}, 0, 30 * time.Second},
		{"milliseconds", 429, []string{"Retry-After: 1500ms"}, 0, 2 * time.Second},
		{"a number and a date", 429, []string{"Retry-After: 5", "Retry-After: " + date(9*time.Second)}, 0, 9 * time.Second},
		{"an exponent", 429, []string{"Retry-After: 1e9"}, 0, 100 * time.Millisecond},
		{"a date with another name of GMT", 429, []string{"Retry-After: " + in(8*time.Second, time.RFC1123)}, 0, 8 * time.Second},
		{"a date with an offset", 429, []string{"Retry-After: " + noon.Add(8*time.Second).In(time.FixedZone("", 7200)).Format(time.RFC1123Z)}, 0, 8 * time.Second},
		{"a date of the old form with a dash", 429, []string{"Retry-After: " + in(8*time.Second, "Monday, 02-Jan-06 15:04:05 GMT")}, 0, 8 * time.Second},
		{"a day of one digit", 429, []string{"Retry-After: Sun, 1 Mar 2026 12:00:08 UTC", "Date: Sun, 1 Mar 2026 12:00:00 UTC"}, 0, 8 * time.Second},
		{"a date in a zone that only people know", 429, []string{"Retry-After: " + in(8*time.Second, "Mon, 02 Jan 2006 15:04:05 PST")}, 0, 100 * time.Millisecond},
		{"a date without a zone", 429, []string{"Retry-After: " + in(8*time.Second, "2006-01-02T15:04:05")}, 0, 100 * time.Millisecond},
		{"a date of RFC 3339", 429, []string{"Retry-After: " + in(8*time.Second, time.RFC3339)}, 0, 8 * time.Second},
		{"milliseconds of a language model", 429, []string{"Retry-After-Ms: 250", "Retry-After: 1"}, 0, 300 * time.Millisecond},
		{"milliseconds of Azure", 429, []string{"X-Ms-Retry-After-Ms: 1200", "Retry-After: 2"}, 0, 1200 * time.Millisecond},
		{"OpenAI, requests", 200, []string{"X-Ratelimit-Remaining-Requests: 0", "X-Ratelimit-Reset-Requests: 8s", "X-Ratelimit-Remaining-Tokens: 149984", "X-Ratelimit-Reset-Tokens: 6m0s"}, 0, 8 * time.Second},
		{"Azure, unlimited tokens", 200, []string{"X-Ratelimit-Remaining-Tokens: -1", "X-Ratelimit-Reset-Tokens: 0"}, 9, 0},
		{"Anthropic, tokens of one kind", 200, []string{"Anthropic-Ratelimit-Requests-Remaining: 9", "Anthropic-Ratelimit-Output-Tokens-Remaining: 0", "Anthropic-Ratelimit-Output-Tokens-Reset: " + in(8*time.Second, time.RFC3339)}, 0, 8 * time.Second},
		{"Jira", 429, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + in(time.Minute, "2006-01-02T15:04Z")}, 0, time.Minute},
		{"a date of JavaScript", 200, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + noon.Add(8*time.Second).In(time.FixedZone("", 3600)).Format("Mon Jan 02 2006 15:04:05 GMT-0700") + " (Central European Standard Time)"}, 0, 8 * time.Second},
		{"Discord", 200, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(7) + ".123", "X-RateLimit-Reset-After: 7.123"}, 0, 8 * time.Second},
		{"forbidden", 403, nil, 9, 0},
		{"GitHub, primary", 403, []string{"X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(30)}, 0, 30 * time.Second},
		{"GitHub, its clock is an hour ahead", 403, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(3630), "Date: " + date(time.Hour)}, 0, 30 * time.Second},
		{"GitHub, secondary, no reason", 429, []string{"X-RateLimit-Remaining: 4000", "X-RateLimit-Reset: " + epoch(3000)}, 0, 100 * time.Millisecond},
		{"a reset that has passed", 200, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(-5)}, 0, 100 * time.Millisecond},
		{"milliseconds since 1970", 403, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + epoch(30) + "500"}, 0, 31 * time.Second},
		{"a reset with a fraction", 200, []string{"X-RateLimit-Remaining: 0.0", "X-RateLimit-Reset: " + epoch(30) + ".25"}, 0, 31 * time.Second},
		{"another spelling", 200, []string{"X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: " + epoch(12)}, 0, 12 * time.Second},
		{"X-RateLimit, fewer", 200, []string{"X-RateLimit-Remaining: 4", "X-RateLimit-Reset: " + epoch(30)}, 4, 0},
		{"X-RateLimit, garbage", 200, []string{"X-RateLimit-Remaining: none", "X-RateLimit-Reset: never"}, 9, 0},
		{"X-RateLimit, no reset", 200, []string{"X-RateLimit-Remaining: 0"}, 0, 100 * time.Millisecond},
		{"X-RateLimit, from a cache", 200, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9", "Age: 5"}, 9, 0},
		{"an earlier draft", 200, []string{"RateLimit-Limit: 10", "RateLimit-Remaining: 0", "RateLimit-Reset: 9"}, 0, 9 * time.Second},
		{"an earlier draft before X-RateLimit", 200, []string{"RateLimit-Remaining: 0", "RateLimit-Reset: 9", "X-RateLimit-Remaining: 5"}, 0, 9 * time.Second},
		{"draft 7", 429, []string{"RateLimit: limit=10, remaining=0, reset=5", "RateLimit-Policy: 10;w=60"}, 0, 5 * time.Second},
		{"several windows", 200, []string{"X-RateLimit-Remaining: 5, 0", "X-RateLimit-Reset: 3, 8"}, 0, 8 * time.Second},
		{"garbage", 429, []string{"Retry-After: soon", "RateLimit: (;"}, 0, 100 * time.Millisecond},
		{"no reason", 429, nil, 0, 100 * time.Millisecond},
		{"no reason of a 503", 503, nil, 9, 0},
		{"more than we know", 200, []string{`RateLimit: "a";r=999999999999999;t=1`}, 9, 0},
		{"fewer, as a token", 200, []string{`RateLimit: a;r=4`}, 4, 0},
		{"no more", 200, []string{`RateLimit: "a";r=0;t=3`}, 0, 3 * time.Second},
		{"no more, for who knows how long", 200, []string{`RateLimit: "a";r=0`}, 0, 100 * time.Millisecond},
		{"the strictest of several", 200, []string{`RateLimit: "a";r=5;t=1, "b";r=0;t=2`, `RateLimit: "c";r=0;t=4, "d";r=1;t=9`}, 0, 4 * time.Second},
		{"Retry-After first", 429, []string{`RateLimit: "a";r=0;t=9`, "Retry-After: 2"}, 0, 2 * time.Second},
		{"negative left", 200, []string{`RateLimit: "a";r=-1;t=9`}, 9, 0},
		{"malformed in a second line", 200, []string{`RateLimit: "a";r=0;t=9`, `RateLimit: "`}, 9, 0},
		{"bytes", 200, []string{`RateLimit-Policy: "a";q=1000;qu="content-bytes"`, `RateLimit: "a";r=0;t=9`}, 9, 0},
		{"requests", 200, []string{`RateLimit-Policy: "a";q=1000;qu="requests"`, `RateLimit: "a";r=0;t=9`}, 0, 9 * time.Second},
		{"from a cache", 200, []string{`RateLimit: "a";r=0;t=9`, "Age: 1"}, 9, 0},
		{"not from a cache", 200, []string{`RateLimit: "a";r=0;t=9`, "Age: 0"}, 0, 9 * time.Second},
	} {
		lim, m := newLimiter(t)
		tr := newTransport(t, lim, tenPerSecond, TransportOptions{
			Base: upstream(func(*http.Request) *http.Response { return says(c.status, c.lines...) }), Clock: m, MaxFollow: most, NoWait: true,
			OnError: func(_ *http.Request, err error) { t.Error(err) },
		})
		r, _ := request(t.Context(), "http://a.example/")
		if _, err := tr.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		res := lim.Peek("a.example", tenPerSecond)
		if res.Remaining != c.left || res.RetryAfter != c.wait {
			t.Errorf("%s: %d left, the next after %v, want %d and %v", c.name, res.Remaining, res.RetryAfter, c.left, c.wait)
		}
	}
}

// An upstream's answer to a request that took long is no news about what has come back since.
func TestTransportAllowsForTheTimeThatARequestTook(t *testing.T) {
	lim, m := newLimiter(t)
	sets := &counted{Limiter: lim}
	tr := newTransport(t, sets, tenPerSecond, TransportOptions{Clock: m, NoWait: true, Base: upstream(func(*http.Request) *http.Response {
		left := lim.Peek("a.example", tenPerSecond).Remaining
		m.Advance(250 * time.Millisecond)
		return says(200, fmt.Sprintf(`RateLimit: "a";r=%d;t=1`, left))
	})})
	for range 40 {
		r, _ := request(t.Context(), "http://a.example/")
		if _, err := tr.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
	}
	if sets.n != 0 {
		t.Errorf("the limiter was corrected %d times", sets.n)
	}
}

// counted counts the calls of Set.
type counted struct {
	*local.Limiter
	n int
}

func (c *counted) Set(key string, rule *limit.Rule, used int64) error {
	c.n++
	return c.Limiter.Set(key, rule, used)
}

func TestNewTransportErrors(t *testing.T) {
	lim, _ := newLimiter(t)
	window := limit.Must(limit.SlidingWindow("w", 10, time.Second))
	inContext := limit.WithContext(lim)
	for name, c := range map[string]struct {
		lim  limit.ContextLimiter
		rule *limit.Rule
		key  KeyFunc
		o    TransportOptions
	}{
		"no limiter":    {nil, tenPerSecond, toHost, TransportOptions{}},
		"a nil limiter": {limit.WithContext((*local.Limiter)(nil)), tenPerSecond, toHost, TransportOptions{}},
		"no rule":       {inContext, nil, toHost, TransportOptions{}},
		"no key":        {inContext, tenPerSecond, nil, TransportOptions{}},
		"a window":      {inContext, window, toHost, TransportOptions{}},
		"negative":      {inContext, tenPerSecond, toHost, TransportOptions{MaxWait: -1}},
		"negative, too": {inContext, tenPerSecond, toHost, TransportOptions{MaxFollow: -1}},
		"for days":      {inContext, tenPerSecond, toHost, TransportOptions{MaxFollow: 25 * time.Hour}},
	} {
		if tr, err := NewTransport(c.lim, c.rule, c.key, c.o); err == nil || tr != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewTransport(inContext, window, toHost, TransportOptions{Ignore: true}); err != nil {
		t.Error(err)
	}
}

// A hold lasts at least as long as it is asked to, and less than one more unit's time, for
// any rule; however large the numbers are.
func FuzzHold(f *testing.F) {
	f.Add(int64(10), int64(10), int64(time.Second), int64(7*time.Second))
	f.Add(int64(1), int64(1), int64(time.Hour), int64(time.Second))
	f.Add(int64(1<<53), int64(1<<53), int64(1), int64(time.Hour))
	f.Fuzz(func(t *testing.T, n, units, per, wait int64) {
		rule, err := limit.TokenBucket("r", units, time.Duration(per), n)
		if err != nil || n == 0 || wait <= 0 || wait > int64(maxMaxFollow) {
			return
		}
		lim, err := local.New(local.Options{Clock: clock.NewManual(noon)})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		tr := newTransport(t, lim, rule, TransportOptions{MaxFollow: maxMaxFollow}).follower
		if err := tr.hold(t.Context(), "k", time.Duration(wait)); err != nil {
			t.Fatal(err)
		}
		one := refillTime(rule, 1)
		got := lim.Peek("k", rule).RetryAfter
		if debt := tr.leaks(time.Duration(wait)); debt >= arith.MaxUnits-n {
			return // more than can be said
		}
		if got < time.Duration(wait) || got > time.Duration(wait)+one {
			t.Errorf("%v holds for %v, want %v and at most %v more", rule, got, time.Duration(wait), one)
		}
	})
}
