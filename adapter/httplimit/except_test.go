package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

func clientAddr(t testing.TB, o AddressOptions) func(*http.Request) netip.Addr {
	t.Helper()
	f, err := ClientAddr(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// newHybrid returns a limiter with figures, without Redis.
func newHybrid(t testing.TB) *hybrid.Limiter {
	t.Helper()
	lim, err := hybrid.New(nil, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// excepted is a router with a limit of one request, and a list of exceptions.
type excepted struct {
	http.Handler
	lim  *hybrid.Limiter
	last Decision
}

func except(t testing.TB, list ...Exception) *excepted {
	t.Helper()
	e := &excepted{lim: newHybrid(t)}
	m, err := NewAll(limit.WithContext(e.lim), Options{
		Client:     clientAddr(t, AddressOptions{Trusted: proxies, Header: XForwardedFor}),
		OnDecision: func(_ *http.Request, d Decision) { e.last = d },
	}, Limit{Rule: perMinute("one", 1), Key: By(byKey), Except: list})
	if err != nil {
		t.Fatal(err)
	}
	mux, served := http.NewServeMux(), m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	mux.Handle("GET /health", served)
	mux.Handle("/", served)
	e.Handler = mux
	return e
}

// ask sends a request from an address, with lines of X-Forwarded-For.
func (e *excepted) ask(method, path, key, remote string, forwarded ...string) int {
	r := httptest.NewRequest(method, "/", nil)
	r.URL.Path, r.RemoteAddr = path, remote
	r.Header.Set("Key", key)
	r.Header["X-Forwarded-For"] = forwarded
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Code
}

var office = Exception{Ranges: prefixes("198.51.100.0/24", "2001:db8:1::/48"), Rule: limit.Unlimited()}

// Who is exempt, and who is not although he says so.
//
// Fault 103: forged headers, mapped and zoned addresses, other forms of a route, keys that look like
// addresses.
func TestExceptions(t *testing.T) {
	const peer, outside = "10.0.0.1:9", "203.0.113.9:9"
	for _, c := range []struct {
		method, path, key, remote string
		forwarded                 []string
		by                        string // "": it is limited
	}{
		{"GET", "/x", "k", "198.51.100.7:1", nil, "address in 198.51.100.0/24"},
		{"GET", "/x", "k", "[::ffff:198.51.100.7]:1", nil, "address in 198.51.100.0/24"},
		{"GET", "/x", "k", "[2001:db8:1::7%eth0]:1", nil, "address in 2001:db8:1::/48"},
		{"GET", "/x", "k", peer, []string{"198.51.100.7"}, "address in 198.51.100.0/24"},
		{"GET", "/x", "k", "198.51.100.7:1", []string{"203.0.113.5"}, "address in 198.51.100.0/24"}, // it is no proxy of ours, and so read as the client
		{"GET", "/x", "k", outside, nil, ""},
		{"GET", "/x", "k", outside, []string{"198.51.100.7"}, ""},
		{"GET", "/x", "k", outside, []string{"198.51.100.7, 10.0.0.2"}, ""},
		{"GET", "/x", "k", peer, []string{"198.51.100.7, 203.0.113.5"}, ""},
		{"GET", "/x", "k", peer, []string{"198.51.100.7, unknown"}, ""},
		{"GET", "/x", "k", peer, []string{"198.51.100.7,"}, "address in 198.51.100.0/24"},
		{"GET", "/x", "k", peer, []string{"198.51.100.7" + strings.Repeat(", 10.0.0.2", maxHops+1)}, ""},
		{"GET", "/x", "k", peer, nil, ""},
		{"GET", "/x", "k", "@", []string{"198.51.100.7"}, ""},
		{"GET", "/x", "198.51.100.7", outside, nil, ""}, // users choose their names
		{"GET", "/health", "k", outside, nil, "route GET /health"},
		{"HEAD", "/health", "k", outside, nil, "route GET /health"},
		{"GET", "/health", "", outside, nil, "route GET /health"}, // it needs no key
		{"POST", "/health", "k", outside, nil, ""},
		{"GET", "/health/", "k", outside, nil, ""},
		{"GET", "/HEALTH", "k", outside, nil, ""},
		{"GET", "/health%2f", "k", outside, nil, ""},
		{"GET", "/x", "monitor", outside, nil, "key"},
		{"GET", "/x", "Monitor", outside, nil, ""},
		{"GET", "//health", "k", outside, nil, "elsewhere"}, // the router sends what is not clean elsewhere
		{"GET", "/x/../health", "k", outside, nil, "elsewhere"},
		{"GET", "/health", "evil", "198.51.100.7:1", nil, "blocked"},
		{"GET", "/health", "k", "198.51.100.66:1", nil, "blocked"},
	} {
		e := except(t, office, Exception{Routes: []string{"GET /health"}, Keys: []string{"monitor"}, Rule: limit.Unlimited()},
			Exception{Keys: []string{"evil"}, Ranges: prefixes("198.51.100.66/32"), Rule: perMinute("none", 0)})
		first, second := e.ask(c.method, c.path, c.key, c.remote, c.forwarded...), e.ask(c.method, c.path, c.key, c.remote, c.forwarded...)
		s := inside.Of(e.lim).Figures()
		switch {
		case c.by == "elsewhere":
			if first/100 != 3 || s.Exempt != 0 {
				t.Errorf("%+v: answered %d, %d exempt", c, first, s.Exempt)
			}
		case c.by == "blocked":
			if first != 429 || s.Exempt != 0 {
				t.Errorf("%+v: answered %d, %d exempt", c, first, s.Exempt)
			}
		case c.by != "":
			if second != 200 || e.last.Exempt != c.by || len(e.last.Checks) != 0 || s.Exempt != 2 || s.Rules[0].Name != "one" || s.Rules[0].Exempt != 2 {
				t.Errorf("%+v: answered %d, exempt by %q, %+v", c, second, e.last.Exempt, s.Rules)
			}
		case first != 200 || second != 429 || e.last.Exempt != "" || s.Exempt != 0:
			t.Errorf("%+v: answered %d and %d, exempt by %q, %d", c, first, second, e.last.Exempt, s.Exempt)
		}
	}
}

// A client whom the proxy does not name is not exempt because the proxy would be.
//
// Fault 103: a proxy that says "unknown".
func TestUnnamedClientsAreNotExempt(t *testing.T) {
	for _, forwarded := range [][]string{nil, {""}, {"unknown"}, {"203.0.113.5, _hidden"}} {
		e := except(t, Exception{Ranges: prefixes("10.0.0.0/8"), Rule: limit.Unlimited()})
		if first, second := e.ask("GET", "/x", "k", "10.0.0.1:9", forwarded...), e.ask("GET", "/x", "k", "10.0.0.1:9", forwarded...); first != 200 || second != 429 {
			t.Errorf("%q: answered %d and %d", forwarded, first, second)
		}
	}
	e := except(t, Exception{Ranges: prefixes("10.0.0.0/8"), Rule: limit.Unlimited()})
	if e.ask("GET", "/x", "k", "10.0.0.1:9", "10.0.0.7"); e.last.Exempt != "" { // a proxy that names nobody behind it
		t.Errorf("exempt by %q", e.last.Exempt)
	}
}

// A limit of one's own: by the longest range, and with its numbers in the fields.
func TestExceptionsWithALimit(t *testing.T) {
	e := except(t, office, Exception{Ranges: prefixes("198.51.100.64/26"), Rule: perMinute("two", 2)})
	for range 9 {
		if code := e.ask("GET", "/x", "k", "198.51.100.1:1"); code != 200 {
			t.Errorf("answered %d", code)
		}
	}
	for i := range 3 {
		want := 200
		if i == 2 {
			want = 429
		}
		r := httptest.NewRequest("GET", "/x", nil)
		r.RemoteAddr = "198.51.100.65:1"
		r.Header.Set("Key", "k")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		answer{Response: w.Result()}.want(t, want, `RateLimit-Policy: "two";q=2;w=60`)
		if e.last.Exempt != "" {
			t.Errorf("exempt by %q", e.last.Exempt)
		}
	}
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header.Set("Key", "k")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	answer{Response: w.Result()}.want(t, 200, `RateLimit-Policy: "one";q=1;w=60`)
}

// Of several limits each has its own exceptions, and what is exempt of one counts under the others.
func TestExceptionsOfOneOfSeveralLimits(t *testing.T) {
	lim := newHybrid(t)
	var last Decision
	h := protect(t, lim, Options{OnDecision: func(_ *http.Request, d Decision) { last = d }}, nil,
		Limit{Rule: perMinute("first", 1), Key: By(byKey), Except: []Exception{{Keys: []string{"vip"}, Rule: limit.Unlimited()}}},
		Limit{Rule: perMinute("second", 2), Key: By(byKey)},
		Limit{RuleFor: func(*http.Request) *limit.Rule { return limit.Unlimited() }, Key: By(byKey), Policy: "third"})
	var codes strings.Builder
	for range 3 {
		r := httptest.NewRequest("GET", "/x", nil)
		r.Header.Set("Key", "vip")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Fprint(&codes, w.Code, " ")
	}
	if codes.String() != "200 200 429 " || last.Exempt != "key" || len(last.Checks) != 1 || last.Checks[0].Rule.Name() != "second" {
		t.Errorf("%s, %+v", &codes, last)
	}
	for _, r := range inside.Of(lim).Figures().Rules {
		if want := map[string]uint64{"first": 3, "third": 3}[r.Name]; r.Exempt != want {
			t.Errorf("%s: %d exempt, want %d", r.Name, r.Exempt, want)
		}
	}
	if text, err := json.Marshal(last); err != nil || !strings.Contains(string(text), `"exempt":"key"`) || strings.Contains(string(text), "vip") || !strings.Contains(last.LogValue().String(), "exempt=key") {
		t.Errorf("%s, %v, %v", text, last.LogValue(), err)
	}
}

// Fault 103: two shapes of one name. Such an exception would undo what both count.
func TestExceptionsThatAreWrong(t *testing.T) {
	lim, _ := newLimiter(t)
	rule := limit.Unlimited()
	for want, x := range map[string]Exception{
		"exception 0: limit: rule is nil":                   {Keys: []string{"k"}},
		"exception 0: it is about nothing":                  {Rule: rule},
		"exception 0: it has Ranges, and Options no Client": {Ranges: prefixes("10.0.0.0/8"), Rule: rule},
		`exception 0: a route is empty, or there twice: "`:  {Routes: []string{""}, Rule: rule},
		`exception 0: a key is empty, or there twice: "k"`:  {Keys: []string{"k", "k"}, Rule: rule},
		"10.0.0.1/8 has bits behind the first 8":            {Ranges: prefixes("10.0.0.1/8"), Rule: rule},
		"the range is not valid":                            {Ranges: []netip.Prefix{{}}, Rule: rule},
		"has the name of":                                   {Keys: []string{"k"}, Rule: limit.Must(limit.FixedWindow("r", 1, time.Hour))},
		"is not printable ASCII: set Policy":                {Keys: []string{"k"}, Rule: perMinute("\u00e9", 1)},
	} {
		o := Options{}
		if !strings.Contains(want, "Client") {
			o.Client = clientAddr(t, AddressOptions{})
		}
		_, err := NewAll(limit.WithContext(lim), o, Limit{Rule: perMinute("r", 1), Key: By(byKey), Except: []Exception{x}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := NewAll(limit.WithContext(lim), Options{}, Limit{Rule: perMinute("r", 1), Key: By(byKey), Except: []Exception{{Keys: []string{"k"}, Rule: perMinute("r", 9)}}}); err != nil {
		t.Error(err)
	}
	if f, err := ClientAddr(AddressOptions{Header: XForwardedFor}); f != nil || err == nil {
		t.Error("an address that every client can choose")
	}
}
