package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkBody is a check of one hit of a user.
func checkBody(user string) string {
	return fmt.Sprintf(`{"domain":"d","descriptors":[{"entries":[{"key":"user","value":%q}]}]}`, user)
}

// A rule that is named in JSON has the counter that HL.TAKE has, and the figures of Envoy's.
func TestChecksByNameCountWithRESP(t *testing.T) {
	n := begin(t, "", nil)
	for range 4 {
		n.take("alice")
	}
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusNotFound} {
		body := []string{`{"rule":"api","key":"alice","n":6}`, `{"rule":"api","key":"alice"}`, `{"rule":"none","key":"alice"}`}[i]
		res, err := http.Post("http://"+n.server.o.Check.Addr().String()+"/check", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s, want %d", body, res.Status, want)
		}
	}
	if n.take("alice") || !n.take("bob") {
		t.Error("HL.TAKE is answered otherwise")
	}
	for _, outcome := range []string{"ok", "over_limit", "invalid"} {
		if _, body := n.get("/metrics"); !strings.Contains(body, `hybridlimit_rls_requests_total{outcome="`+outcome+`"} 1`) {
			t.Errorf("the metrics do not have one of %s", outcome)
		}
	}
}

// alone starts a server of checks and nothing else.
func alone(t *testing.T, timeout time.Duration) (s *Server, dial func() net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, limits)
	ln := loopback(t)
	s, err := Start(Options{RulesPath: path, Check: ln, StopTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	}
}

func TestChecksAreBounded(t *testing.T) {
	s, dial := alone(t, patience)
	for _, c := range []struct {
		head string
		body int
		want string
	}{
		{"", 0, "HTTP/1.1 200"},
		{"", maxMessage, "HTTP/1.1 200"},
		{"", maxMessage + 1, "HTTP/1.1 413"},
		{"X: " + strings.Repeat("x", 2*maxCheckHeader) + "\r\n", 0, "HTTP/1.1 431"},
	} {
		body := checkBody("alice")
		body += strings.Repeat(" ", max(0, c.body-len(body)))
		conn := dial()
		go fmt.Fprintf(conn, "POST /check HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", c.head, len(body), body) // it may be refused before it was sent
		if got, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%d bytes and %d of headers: %q, %v, want %s", len(body), len(c.head), got, err, c.want)
		}
		conn.Close()
	}
	for name, d := range map[string]time.Duration{"header": s.checks.http.ReadHeaderTimeout, "body": s.checks.http.ReadTimeout, "answer": s.checks.http.WriteTimeout, "next": s.checks.http.IdleTimeout} {
		if d <= 0 {
			t.Errorf("a client has for ever for: %s", name)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// Clients that say nothing do not delay the end, and those that do not go on do so for no longer
// than they may.
func TestStopEndsSilentCheckers(t *testing.T) {
	for says, cut := range map[string]bool{"": false, "POST /check HTTP/1.1\r\nHost:": true} {
		// Half of it is for clients. The library waits for 5 s for those that say nothing.
		s, dial := alone(t, 4*time.Second)
		c := dial()
		if _, err := io.WriteString(c, says); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the server has heard it", func() bool { return s.checks.callers.heard(cut) })
		if err := s.Stop(); (err != nil) != cut {
			t.Errorf("%q: %v", says, err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Error("the connection is still open")
		}
	}
}
