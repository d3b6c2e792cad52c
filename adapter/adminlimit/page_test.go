package adminlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{})
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

var five = limit.Must(limit.PerMinute("logins", 5))

// served is a page on a server of its own.
type served struct {
	*httptest.Server
	*adminlimit.Page
}

func serve(t *testing.T, lim *hybrid.Limiter, o adminlimit.Options) served {
	t.Helper()
	page, err := adminlimit.New(lim, o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/limits/", page)
	mux.Handle("/limits", page)
	s := served{httptest.NewServer(mux), page}
	t.Cleanup(s.Server.Close)
	t.Cleanup(page.Close)
	return s
}

// do sends a request, after change has changed it, and returns the answer and its body.
func (s served) do(t *testing.T, method, path, form string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	c := s.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func (s served) get(t *testing.T, path string) string {
	t.Helper()
	res, body := s.do(t, "GET", path, "", nil)
	if res.StatusCode != 200 {
		t.Fatalf("GET %s: %s\n%s", path, res.Status, body)
	}
	return body
}

func formOf(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v.Encode()
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}

// The page says how the limiter is, who else is there, and which keys are used up; so does the JSON.
func TestWhatThePageSays(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2, Limiter: hybrid.Options{NodeName: "web-1 <b>"}})
	s := serve(t, h.Limiter, adminlimit.Options{Title: "logins & more"})
	for range 7 {
		h.Limiter.Allow("mallory", five)
	}
	h.Limiter.Allow("alice", five)
	body := s.get(t, "/limits/")
	contains(t, body, "<title>logins &amp; more: synced</title>", "web-1 &lt;b&gt; (this)", "fair-share, 0.5 of each limit",
		"<code>mallory</code>", "0 of 5", "<code>alice</code>", "4 of 5", "sliding-window")
	if strings.Index(body, "mallory") > strings.Index(body, "alice") {
		t.Error("the key with the least left is not the first")
	}
	var now struct {
		State struct{ Mode string }
		Nodes struct {
			List []struct {
				Name, Version, Mode string
				This                bool
			}
		}
	}
	if err := json.Unmarshal([]byte(s.get(t, "/limits/now.json")), &now); err != nil {
		t.Fatal(err)
	}
	if now.State.Mode != "synced" || len(now.Nodes.List) != 2 || now.Nodes.List[0].This == now.Nodes.List[1].This {
		t.Fatalf("%+v", now)
	}
	for _, n := range now.Nodes.List {
		// The other node is shown as its last heartbeat said, and its first may leave before it is in sync.
		if early := !n.This && n.Mode == "resyncing"; n.Version == "" || n.Mode != "synced" && !early {
			t.Errorf("%+v", now)
		}
	}
	if part := s.get(t, "/limits/?part=now"); strings.Contains(part, "mallory") || !strings.Contains(part, `id="now"`) {
		t.Errorf("a part of the page:\n%s", part)
	}
	h.CutOff()
	contains(t, s.get(t, "/limits/"), "Redis cannot be reached", "nothing is lost", ": degraded</title>", `<span class="top">at most `)
}

// why is what a look-up says of a key.
type why struct {
	More  int
	Found []struct {
		Key, Rule, Why, Source, Says string
		Allowed                      bool
		InMemory                     bool `json:"in_memory"`
		Refused                      bool
		Known, Pending               int64
		Retry                        float64 `json:"retry_after_seconds"`
		Redis                        struct {
			Used  int64
			Error string
		}
	}
}

func (s served) look(t *testing.T, pairs ...string) (w why) {
	t.Helper()
	res, body := s.do(t, "POST", "/limits/keys.json", formOf(pairs...), nil)
	if err := json.Unmarshal([]byte(body), &w); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s: %v\n%s", res.Status, err, body)
	}
	return w
}

// Why was this refused: by what this node has admitted, by what others have, by another node's
// notice, in an outage, or not at all.
func TestWhyAKeyIsRefused(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
	a, b := serve(t, h.Limiters[0], adminlimit.Options{}), serve(t, h.Limiters[1], adminlimit.Options{})
	for range 5 {
		h.Limiters[1].Allow("alice", five)
	}
	if w := a.look(t, "key", "alice"); len(w.Found) != 0 { // no rule is known here
		t.Errorf("%+v", w)
	}
	h.Limiters[0].Allow("bob", five)
	h.Sync()
	h.Limiters[0].Allow("alice", five)
	h.Sync()
	w := a.look(t, "key", "alice")
	if len(w.Found) != 1 || w.Found[0].Rule != "logins" || w.Found[0].Redis.Used < 5 || w.Found[0].Retry <= 0 {
		t.Fatalf("%+v", w)
	}
	contains(t, w.Found[0].Why, "used up")
	if w := b.look(t, "key", "nobody"); len(w.Found) != 0 {
		t.Errorf("a key that nobody has used: %+v", w)
	}
	if w := b.look(t, "key", "nobody", "rule", "logins"); len(w.Found) != 1 || !strings.Contains(w.Found[0].Why, "not seen the key") {
		t.Errorf("a key that nobody has used, by name of the rule: %+v", w)
	}
	h.CutOff()
	for range 5 {
		h.Limiters[1].Allow("carol", five)
	}
	w = b.look(t, "key", "carol")
	if len(w.Found) != 1 || w.Found[0].Source != "degraded" || w.Found[0].Redis.Error == "" {
		t.Fatalf("%+v", w)
	}
	// What is not known is left out, and the error is no sentence within a sentence.
	_, body := b.do(t, "POST", "/limits/keys.json", formOf("key", "carol"), nil)
	if strings.Contains(body, `"used"`) || strings.Contains(body, "hybrid: ") || !strings.HasPrefix(w.Found[0].Redis.Error, "unavailable: ") {
		t.Errorf("Redis is away, and has said\n%s", body)
	}
	contains(t, w.Found[0].Why, "Redis is away", "1/2 of the limit")
}

// Used up in Redis, and this node has not heard of it: the page does not say that all is well.
func TestUsedUpInRedis(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{Limiters: 2, Limiter: hybrid.Options{PollOnly: true}})
	s := serve(t, h.Limiters[0], adminlimit.Options{})
	exact := limit.Must(limit.PerMinute("exact", 5)).Exact()
	for _, rule := range []*limit.Rule{five, exact} {
		h.Limiters[0].Allow("alice", rule)
	}
	h.Sync()
	for _, rule := range []*limit.Rule{five, exact} {
		h.Limiters[1].AllowN("alice", rule, 4)
	}
	if err := h.Limiters[1].Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, body := s.do(t, "POST", "/limits/look", formOf("key", "alice", "rule", "logins"), nil)
	contains(t, body, `<article class="unsure">`, "used up in Redis, and this node has not heard of it yet", ": admitted</h3>")
	_, body = s.do(t, "POST", "/limits/look", formOf("key", "alice", "rule", "exact"), nil)
	contains(t, body, `<article class="wrong">`, "used up in Redis, which decides", ": refused</h3>")
}

// Keys come from attackers: on the page they are text, wherever they stand.
func TestKeysAreText(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	s := serve(t, h.Limiter, adminlimit.Options{Authorise: func(*http.Request) (string, bool) { return "me", true }})
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>` + "\x00\xff'"
	h.Limiter.Allow(hostile, five)
	_, body := s.do(t, "POST", "/limits/look", formOf("key", hostile), nil)
	contains(t, body, "&lt;script&gt;alert(1)", "admitted")
	if strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") {
		t.Errorf("a key became a tag:\n%s", body)
	}
	if n := strings.Count(body, "<script>"); n != 1 {
		t.Errorf("%d scripts", n)
	}
	_, body = s.do(t, "POST", "/limits/look", formOf("key", hostile, "rule", hostile), nil)
	if strings.Contains(body, "<script>alert") {
		t.Errorf("what was asked became a tag:\n%s", body)
	}
}

// A key is found whatever number of rules there is, and a look-up asks Redis once.
func TestManyRules(t *testing.T) {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	defer lim.Close()
	s := serve(t, lim, adminlimit.Options{})
	for i := range 120 {
		lim.Allow("other", limit.Must(limit.PerHour(fmt.Sprintf("a%03d", i), 5)))
	}
	for range 7 {
		lim.Allow("victim", five)
	}
	if w := s.look(t, "key", "victim"); len(w.Found) != 1 || w.Found[0].Allowed || w.Found[0].Rule != "logins" {
		t.Errorf("%+v", w)
	}
	w := s.look(t, "key", "other")
	if len(w.Found) != 50 || w.More != 70 {
		t.Errorf("%d found, %d more", len(w.Found), w.More)
	}
}

var both = limit.Must(limit.Parse("logins", "5/m, 50/h"))

// A key with several limits is shown with each of them, once.
func TestSeveralLimits(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	s := serve(t, h.Limiter, adminlimit.Options{Rules: new(file)})
	h.Limiter.AllowN("both", both, 3)
	_, body := s.do(t, "POST", "/limits/keys.json", "key=both", nil)
	for _, name := range []string{`"logins/1m"`, `"logins/1h"`} {
		if n := strings.Count(body, `"rule": `+name); n != 1 {
			t.Errorf("%s is there %d times:\n%s", name, n, body)
		}
	}
	if n := strings.Count(body, "rule logins"); n != 2 {
		t.Errorf("the file says something of %d limits:\n%s", n, body)
	}
}

// file is a rules file.
type file struct {
	disk, problem string
	line          int
	reloads       int
}

func (f *file) Path() string                  { return "rules.yaml" }
func (f *file) InForce() (string, time.Time)  { return "rules:\n  logins: 5\n", time.Unix(1e9, 0) }
func (f *file) OnDisk() (string, string, int) { return f.disk, f.problem, f.line }
func (f *file) Names() []string               { return []string{"logins"} }
func (f *file) Reload() error                 { f.reloads++; return nil }
func (f *file) CounterKey(_, key string) (string, error) {
	switch key {
	case "203.0.113.9:443":
		return "203.0.113.9", nil
	case "nobody":
		return "", errors.New("nobody is no address")
	}
	return key, nil
}
func (f *file) Lookup(name, plan, key string) (*limit.Rule, string) {
	switch {
	case plan == "none":
		return nil, ""
	case key == "vip":
		return limit.Unlimited(), "override of the key"
	case key == "both":
		return both, "rule " + name
	}
	return five, "rule " + name + plan
}

// The rules file is shown beside what is in force, with the error at its line.
func TestRulesFile(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	f := &file{disk: "rules:\n  logins: 5\n"}
	s := serve(t, h.Limiter, adminlimit.Options{Rules: f, Authorise: func(*http.Request) (string, bool) { return "", true }})
	if body := s.get(t, "/limits/"); !strings.Contains(body, "In force since 2001-09-09") || strings.Contains(body, "On disk") {
		t.Errorf("the file is in force:\n%s", body)
	}
	f.disk, f.problem, f.line = "rules:\n  logins: <five>\n", "rules.yaml:2:11: <five> is no number", 2
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.get(t, "/limits/"), "On disk") && time.Now().Before(deadline); {
		<-time.After(50 * time.Millisecond) // viewers share for a second what was read
	}
	contains(t, s.get(t, "/limits/"), "On disk", "<mark>  logins: &lt;five&gt;</mark>", "stay in force: rules.yaml:2:11: &lt;five&gt;")
	if w := s.look(t, "key", "vip"); len(w.Found) != 1 || !w.Found[0].Allowed && w.Found[0].Why != "Nothing limits this key." || w.Found[0].Says != "override of the key" {
		t.Errorf("%+v", w)
	}
	if w := s.look(t, "key", "bob", "rule", "logins", "plan", "+gold"); len(w.Found) != 1 || w.Found[0].Says != "rule logins+gold" {
		t.Errorf("%+v", w)
	}
	for _, form := range []string{"key=x&rule=other", "key=x&rule=logins&plan=none"} {
		if res, body := s.do(t, "POST", "/limits/look", form, nil); res.StatusCode != 404 || !strings.Contains(body, "no such rule") {
			t.Errorf("%s: %s", form, res.Status)
		}
	}
	if res, _ := s.do(t, "POST", "/limits/act", "do=reload", nil); res.StatusCode != 200 || f.reloads != 1 {
		t.Errorf("a reload: %s, %d", res.Status, f.reloads)
	}
}

// The page of a limiter without Redis, and of one that is closed.
func TestWithoutRedis(t *testing.T) {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
	s := serve(t, lim, adminlimit.Options{})
	lim.Allow("alice", five)
	contains(t, s.get(t, "/limits/"), "local-only", "limits of its own", "4 of 5")
	if w := s.look(t, "key", "alice"); len(w.Found) != 1 || w.Found[0].Source != "local" {
		t.Errorf("%+v", w)
	}
	if err := lim.Close(); err != nil {
		t.Fatal(err)
	}
	contains(t, s.get(t, "/limits/"), "The limiter is closed.")
	if _, err := adminlimit.New(nil, adminlimit.Options{}); err == nil {
		t.Error("a page of no limiter")
	}
}

func ExampleNew() {
	lim := limit.Must(hybrid.New(nil, hybrid.Options{})) // without Redis
	defer lim.Close()
	page := limit.Must(adminlimit.New(lim, adminlimit.Options{}))
	defer page.Close()
	admin := http.NewServeMux()
	admin.Handle("/limits/", page) // where operators are and users are not
	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/limits/", nil))
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "local-only"))
	// Output: 200 true
}
