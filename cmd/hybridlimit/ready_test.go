package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// answering is a server with one answer.
func answering(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

func TestReady(t *testing.T) {
	at := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	cli(t, "ready", at+"/readyz").want(t, exitOK).says(t, at+"/readyz is ready")
	cli(t, "ready", strings.TrimPrefix(at, "http://")).want(t, exitOK).says(t, at+"/readyz is ready")
	cli(t, "ready", at+"/other").want(t, exitFound).says(t, "is not ready: 404 Not Found")
	var out readyJSON
	cli(t, "ready", at+"/readyz", "--json").want(t, exitOK).read(t, &out)
	if !out.Ready || out.Why != "" || out.URL != at+"/readyz" {
		t.Errorf("%+v", out)
	}
}

func TestNotReady(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	for name, c := range map[string]struct{ url, why string }{
		"stopping": {answering(t, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "stopping \x1b[2J", http.StatusServiceUnavailable)
		}), "503 Service Unavailable: stopping"},
		"elsewhere": {answering(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/", http.StatusFound)
		}), "302 Found"},
		"nothing": {"http://" + ln.Addr().String(), "connection refused"},
		"long": {answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write(bytes.Repeat([]byte("no "), 1<<20))
		}), "500 Internal Server Error: no no"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cli(t, "ready", c.url).want(t, exitFound).says(t, "is not ready: ", c.why); len(got.out) > 2*mostReason {
				t.Errorf("%d bytes", len(got.out))
			}
			var out readyJSON
			cli(t, "ready", c.url, "--json").want(t, exitFound).read(t, &out)
			if out.Ready || !strings.Contains(out.Why, c.why) {
				t.Errorf("%+v", out)
			}
		})
	}
	hung := make(chan struct{})
	at := answering(t, func(http.ResponseWriter, *http.Request) { <-hung })
	t.Cleanup(func() { close(hung) }) // before the server is closed, which waits for its answers
	cli(t, "ready", at).want(t, exitFound).says(t, "is not ready: no answer within 2s")
}

// The answer of a proxy is not that of the server.
func TestReadyAsksDirectly(t *testing.T) {
	t.Setenv("HTTP_PROXY", answering(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy is asked") }))
	cli(t, "ready", "http://hybridlimit.invalid/readyz").want(t, exitFound).says(t, "is not ready: ")
}

func TestReadyUsage(t *testing.T) {
	for _, url := range []string{"127.0.0.1", "/readyz", "ftp://127.0.0.1/", "http://", "http://u:secret@[/", "ftp://u:secret@host/"} {
		if got := cli(t, "ready", url).want(t, exitUsage); strings.Contains(got.out+got.err, "secret") {
			t.Errorf("a password is shown: %s", got.err)
		}
	}
	if got := cli(t, "ready", "http://u:secret@127.0.0.1:1/").want(t, exitFound); strings.Contains(got.out+got.err, "secret") {
		t.Errorf("a password is shown: %s", got.out)
	}
}
