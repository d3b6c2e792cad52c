package adminlimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybridtest"
)

// What is asked under another host name, from another site or by another method is refused, and every
// answer says that nothing is to be loaded, framed or kept.
func TestGuards(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	s := serve(t, h.Limiter, adminlimit.Options{Hosts: []string{"admin.example.com"}})
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for name, want := range map[string]int{
		"evil.example": 403, "": 200, "localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1:1": 200, "127.9.9.9": 200, "[::1]:80": 200, "[::1]": 200, "localhost.": 200,
		"admin.example.com": 200, "Admin.Example.com:443": 200, "x.admin.example.com": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403, "[::2]": 403,
	} {
		res, _ := s.do(t, "GET", "/limits/", "", host(name))
		if res.StatusCode != want {
			t.Errorf("host %q: %s, want %d", name, res.Status, want)
		}
		csp := res.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") ||
			res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("headers: %v", res.Header)
		}
	}
	for _, path := range []string{"/limits/look", "/limits/keys.json", "/limits/act", "/limits/act.json"} {
		res, _ := s.do(t, "POST", path, "key=x", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
		if res.StatusCode != 403 {
			t.Errorf("%s from another site: %s", path, res.Status)
		}
	}
	for request, want := range map[string]int{"PUT /limits/": 405, "POST /limits/": 405, "DELETE /limits/now.json": 405, "POST /limits/now.json": 405, "GET /limits/nothing.json": 404,
		"GET /limits/act": 200, "HEAD /limits/": 200} {
		method, path, _ := strings.Cut(request, " ")
		if res, _ := s.do(t, method, path, "", nil); res.StatusCode != want {
			t.Errorf("%s: %s, want %d", request, res.Status, want)
		}
	}
	if res, _ := s.do(t, "GET", "/limits", "", nil); res.StatusCode != 308 || res.Header.Get("Location") != "./limits/" {
		t.Errorf("without a slash: %s to %q", res.Status, res.Header.Get("Location"))
	}
	if res, _ := s.do(t, "POST", "/limits/look", "key="+strings.Repeat("x", 100<<10), nil); res.StatusCode != 400 {
		t.Errorf("a large form: %s", res.Status)
	}
}

// A form is wanted, with a key: anything else is no look-up of the empty key. What is asked for in the
// path leads nowhere else, and the page may be mounted anywhere.
func TestForms(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	s := serve(t, h.Limiter, adminlimit.Options{})
	for kind, want := range map[string]int{"application/json": 415, "": 415, "multipart/form-data; boundary=x": 415, "application/x-www-form-urlencoded; charset=utf-8": 200} {
		if res, body := s.do(t, "POST", "/limits/keys.json", "key=alice", func(r *http.Request) { r.Header.Set("Content-Type", kind) }); res.StatusCode != want {
			t.Errorf("%q: %s, want %d\n%s", kind, res.Status, want, body)
		}
	}
	if res, _ := s.do(t, "POST", "/limits/keys.json", "k=alice", nil); res.StatusCode != 400 {
		t.Errorf("without a key: %s", res.Status)
	}
	for path, want := range map[string]string{"/limits/https:evil.example": "./https:evil.example/", "/limits/javascript:alert%281%29": "./javascript:alert%281%29/", "/limits/x%3Fy": "./x%3Fy/", "/limits/%5C%5Cevil": "./%5C%5Cevil/"} {
		if res, _ := s.do(t, "GET", path, "", nil); res.StatusCode != 308 || res.Header.Get("Location") != want {
			t.Errorf("%s: %s to %q", path, res.Status, res.Header.Get("Location"))
		}
	}
	for mount, paths := range map[string]map[string]string{
		"/a/b": {"/a/b": "./b/", "/a/b/": "", "/a/b/now.json": ""},
		"":     {"/": "", "/rules.json": "", "/z": "./z/"},
	} {
		for path, want := range paths {
			w := httptest.NewRecorder()
			http.StripPrefix(mount, s.Page).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
			if location := w.Header().Get("Location"); location != want || want == "" && w.Code != 200 {
				t.Errorf("%s under %q: %d to %q, want %q", path, mount, w.Code, location, want)
			}
		}
	}
}

// Nothing can be changed unless somebody says who may; what is changed is logged with who.
func TestActs(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	var log bytes.Buffer
	o := adminlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for range 6 {
		h.Limiter.Allow("alice", five)
	}
	reset := formOf("do", "reset", "key", "alice", "rule", "logins")
	used := func() int64 { return 5 - h.Limiter.Peek("alice", five).Remaining }
	if res, body := serve(t, h.Limiter, o).do(t, "POST", "/limits/act.json", reset, nil); res.StatusCode != 403 || used() != 5 || !strings.Contains(body, "--admin-password of hybridlimit serve") {
		t.Errorf("by default: %s, %d are used", res.Status, used())
	}
	o.Authorise = func(r *http.Request) (string, bool) {
		name, password, _ := r.BasicAuth()
		return name, password == "secret"
	}
	s := serve(t, h.Limiter, o)
	as := func(password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth("ann\n", password) }
	}
	if res, _ := s.do(t, "POST", "/limits/act", reset, nil); res.StatusCode != 401 || !strings.Contains(res.Header.Get("WWW-Authenticate"), "Basic") || used() != 5 {
		t.Errorf("without a password: %s, %v", res.Status, res.Header)
	}
	if res, _ := s.do(t, "POST", "/limits/act", reset, as("wrong")); res.StatusCode != 403 || used() != 5 || !strings.Contains(log.String(), "refused") {
		t.Errorf("with another password: %s\n%s", res.Status, &log)
	}
	for range 20 {
		s.do(t, "POST", "/limits/act", reset, as("wrong"))
	}
	if n := strings.Count(log.String(), "refused"); n != 1 {
		t.Errorf("%d lines for many wrong passwords:\n%s", n, &log)
	}
	if res, _ := s.do(t, "POST", "/limits/act", reset, as("secret")); res.StatusCode != 429 {
		t.Errorf("a password after many others: %s", res.Status)
	}
	<-time.After(500 * time.Millisecond)
	if res, body := s.do(t, "POST", "/limits/act", reset, as("secret")); res.StatusCode != 200 || used() != 0 || !strings.Contains(body, "0 units are used now") {
		t.Errorf("a reset: %s, %d are used\n%s", res.Status, used(), body)
	}
	if res, body := s.do(t, "POST", "/limits/act.json", formOf("do", "set", "used", "1", "key", "alice", "rule", "logins"), as("secret")); res.StatusCode != 200 || used() != 1 || !strings.Contains(body, `"done"`) || !strings.Contains(body, "1 unit is used now") {
		t.Errorf("a set: %s, %d are used\n%s", res.Status, used(), body)
	}
	contains(t, log.String(), `act=reset`, `key="\"alice\""`, `who="ann\n"`)
	for _, bad := range []string{formOf("do", "set", "used", "-1", "key", "alice", "rule", "logins"), formOf("do", "set", "used", "x", "key", "alice", "rule", "logins"), formOf("do", "explode", "key", "alice"),
		formOf("do", "reset", "key", "alice"), formOf("do", "reset", "key", "alice", "rule", "other"), formOf("do", "reload")} {
		res, body := s.do(t, "POST", "/limits/act.json", bad, as("secret"))
		for ; res.StatusCode == 429; res, body = s.do(t, "POST", "/limits/act.json", bad, as("secret")) {
			<-time.After(50 * time.Millisecond) // there are few a second
		}
		if res.StatusCode != 422 || !strings.Contains(body, `"error"`) || used() != 1 {
			t.Errorf("%s: %s\n%s", bad, res.Status, body)
		}
	}
}

// Keys can be left out altogether.
func TestHiddenKeys(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	h.Limiter.Allow("alice", five)
	s := serve(t, h.Limiter, adminlimit.Options{HideKeys: true})
	all := s.get(t, "/limits/") + s.get(t, "/limits/now.json") + s.get(t, "/limits/rules.json")
	if strings.Contains(all, "alice") || strings.Contains(all, "refused?") {
		t.Errorf("keys are shown:\n%s", all)
	}
	s = serve(t, h.Limiter, adminlimit.Options{HideKeys: true, Rules: &file{disk: "overrides: [{key: alice}]", problem: "rules.yaml:7:1: overrides[key=alice]: no", line: 7}})
	all = s.get(t, "/limits/") + s.get(t, "/limits/rules.json")
	if strings.Contains(all, "alice") || strings.Contains(all, "logins: 5") || !strings.Contains(all, "the first mistake is in line 7") {
		t.Errorf("keys of the rules file are shown:\n%s", all)
	}
	for request, want := range map[string]int{"GET keys.json": 403, "POST keys.json": 403, "POST look": 403} {
		method, path, _ := strings.Cut(request, " ")
		if res, body := s.do(t, method, "/limits/"+path, "key=alice", nil); res.StatusCode != want || strings.Contains(body, "4 of 5") || !strings.Contains(body, "--admin-keys of hybridlimit serve") {
			t.Errorf("%s: %s\n%s", request, res.Status, body)
		}
	}
	_, got := s.do(t, "GET", "/limits/keys.json", "", nil)
	if _, posted := s.do(t, "POST", "/limits/keys.json", "key=alice", nil); got != posted || !strings.Contains(got, `"error"`) {
		t.Errorf("a list of keys is answered by\n%s, and a look-up by\n%s", got, posted)
	}
}
