package check

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/rls"
	"github.com/hybridlimit/hybridlimit/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page returns a page of the documents.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between returns what stands between two texts.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, text, found := strings.Cut(text, begin)
	text, _, closed := strings.Cut(text, end)
	if !found || !closed {
		t.Fatalf("there is nothing between %q and %q", begin, end)
	}
	return text
}

// serve returns a handler for the rules of the page about rules files and the descriptors of the
// page about the server.
func serve(t *testing.T) http.Handler {
	t.Helper()
	named := between(t, page(t, "rules.md"), "```yaml rules.yaml\n", "...\n```")
	return serveRules(t, named+"---\n"+between(t, page(t, "server.md"), "```yaml\n", "```"), rls.Options{})
}

func serveRules(t *testing.T, text string, o rls.Options) http.Handler {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if o.Limiter == nil {
		o.Limiter = newLocal(t)
	}
	o.Rules = func() *rules.Set { return set }
	service, err := rls.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return Handler(service, 256<<10)
}

func newLocal(t *testing.T) *local.Limiter {
	t.Helper()
	lim, err := local.New(local.Options{Clock: clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	return lim
}

func TestAnswers(t *testing.T) {
	const one = `{"domain": "messaging", "descriptors": [{"entries": [{"key": "to_number", "value": "1"}]}]}`
	request := func(method, path, kind, body string) *http.Request {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		return r
	}
	for _, c := range []struct {
		r    *http.Request
		code int
		says string
	}{
		{request("POST", "/check", "", one), 200, `"limitRemaining":99`},
		{request("POST", "/check", "application/json; charset=utf-8", one), 200, `"OK"`},
		{request("POST", "/check", "text/plain", one), 415, "application/json"},
		{request("POST", "/check?pretty", "", strings.ReplaceAll(one, "descriptors", "descriptors ")), 400, `unknown field \"descriptors \"`},
		{request("POST", "/check", "", `{"domain":"messaging","descriptors":[{"entries":[{"key":"to_number","value":"2"}],"hits_addend":"4"}]}`), 200, `"limitRemaining":96`},
		{request("POST", "/check", "", ""), 400, "unexpected token"},
		{request("POST", "/check", "", one+one), 400, "unexpected token"},
		{request("POST", "/check", "", `{"domain": "`+"\xff"+`"}`), 400, "invalid UTF-8"},
		{request("POST", "/check", "", `{"`+strings.Repeat("x", 10_000)+`": 1}`), 400, "…"},
		{request("POST", "/check", "", strings.Repeat("[", 100_000)), 400, "unexpected token"},
		{request("POST", "/check", "", `{"domain": "d", "descriptors": [{"hitsAddend": "9223372036854775807"}]}`), 400, "hits_addend of descriptor 0"},
		{httptest.NewRequest("POST", "/check", iotest.ErrReader(io.ErrUnexpectedEOF)), 400, "could not be read"},
		{request("POST", "/check", "", strings.Repeat(" ", 256<<10)), 400, "unexpected token"},
		{request("POST", "/check", "", strings.Repeat(" ", 256<<10+1)), 413, "262144 bytes"},
		{request("GET", "/check", "", ""), 405, "Method Not Allowed"},
		{request("POST", "/openapi.json", "", ""), 405, "Method Not Allowed"},
		{request("HEAD", "/openapi.json", "", ""), 200, ""},
		{request("POST", "/", "", one), 404, "POST /check"},
	} {
		w := ask(serve(t), c.r)
		kind := "application/problem+json"
		if c.code == 200 {
			kind = "application/json"
		}
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || w.Header().Get("Content-Type") != kind || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %d %v\n%s, want %d and %q", c.r.Method, c.r.URL, w.Code, w.Header(), w.Body, c.code, c.says)
		}
		if (c.code == 405) != (w.Header().Get("Allow") != "") || w.Body.Len() > 1<<10 && c.says != "" {
			t.Errorf("%s %s: %v, %d bytes", c.r.Method, c.r.URL, w.Header(), w.Body.Len())
		}
	}
	if w := ask(Handler(broken{}, 1<<10), post("{}")); w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// What is decided is decided by the service: its options mean the same, and a wait is said if
// waiting helps.
func TestRefusals(t *testing.T) {
	const text = "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: hour, requests_per_unit: 10}}\n  - {key: b, rate_limit: {unit: day, requests_per_unit: 2}}\n...\n"
	two := func(n string) *http.Request {
		return post(`{"domain":"d","descriptors":[{"entries":[{"key":"a"}]},{"entries":[{"key":"b"}]}],"hitsAddend":` + n + `}`)
	}
	for name, c := range map[string]struct {
		o           rls.Options
		hits        string // of the second request; of the first 2
		code        int
		retry, says string
	}{
		"refused":         {rls.Options{}, "1", 429, "86400", `"limitRemaining":8`},
		"for ever":        {rls.Options{}, "3", 429, "", `"overallCode":"OVER_LIMIT"`},
		"shadow":          {rls.Options{Shadow: true}, "1", 200, "", `"code":"OVER_LIMIT"`},
		"refused charges": {rls.Options{ChargeRefused: true}, "1", 429, "86400", `"limitRemaining":7`},
		"headers":         {rls.Options{Headers: true}, "1", 429, "86400", `{"key":"Retry-After","value":"86400"}`},
	} {
		h := serveRules(t, text, c.o)
		if w := ask(h, two("2")); w.Code != 200 || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s: the first is answered %d %v", name, w.Code, w.Header())
		}
		w := ask(h, two(c.hits))
		if w.Code != c.code || w.Header().Get("Retry-After") != c.retry || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d, again in %q s\n%s, want %d, %q and %s", name, w.Code, w.Header().Get("Retry-After"), w.Body, c.code, c.retry, c.says)
		}
	}
}
