package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/ops"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestStopReportsWhatIsPending(t *testing.T) {
	redis := redistest.Start(t)
	slow := func(o *Options) { // a new key is asked for at once while notices have just begun to arrive
		o.Limiter.SyncInterval, o.Limiter.MaxLag, o.Limiter.PollOnly = time.Minute, time.Minute, true
	}
	a := begin(t, redis.Addr(), slow).synced()
	pending := func() int64 { return a.server.Limiter().Stats().PendingUnits }
	take := []string{"CL.THROTTLE", "alice", "999", "1", "3600", "3"} // of 1,000: near the limit a limiter reports at once
	if a.command(take...)[0] != 0 {
		t.Fatal("refused")
	}
	if n := pending(); n != 3 {
		t.Fatalf("%d units are pending, want 3: there is nothing to test", n)
	}
	a.end()
	if n := pending(); n != 0 {
		t.Fatalf("%d units are still pending after the end", n)
	}
	b := begin(t, redis.Addr(), nil).synced()
	eventually(t, "the next server knows of it", func() bool { return b.command(append(take[:5:5], "0")...)[2] == 997 })
}

func TestRulesAreReloaded(t *testing.T) {
	n := begin(t, "", nil)
	if got := admits(t, n.take, "alice"); got != 10 {
		t.Fatalf("%d are admitted, want 10", got)
	}
	write(t, n.path, strings.ReplaceAll(limits, "10", "15"))
	eventually(t, "15 are allowed", func() bool { return n.command("HL.PEEK", "api", "alice")[1] == 15 })
	if got := admits(t, n.take, "alice"); got != 5 {
		t.Errorf("%d more are admitted, want 5: what was used stays", got)
	}
	// A rule that this limiter cannot decide by would refuse everything.
	write(t, n.path, strings.ReplaceAll(limits, "sliding-window", "sliding-log"))
	eventually(t, "the file is refused", func() bool { _, body := n.get("/readyz"); return strings.Contains(body, "sliding log") })
	if got := n.command("HL.PEEK", "api", "alice"); len(got) != 5 || got[1] != 15 {
		t.Errorf("%v: such a file is in force", got)
	}
	write(t, n.path, "rules: {api: {algorithm: sliding-window, limit: ten, per: 24h}}")
	eventually(t, "the file is refused", func() bool { _, body := n.get("/readyz"); return strings.Contains(body, "whole number") })
	if n.take("alice") || !n.take("bob") || !n.ask("bob") {
		t.Error("a bad file changes what is in force")
	}
	if code, body := n.get("/readyz"); code != http.StatusOK || !strings.Contains(body, `"ready":true`) {
		t.Errorf("%d, %s: a server with a bad file must go on", code, body)
	}
	if _, body := n.get("/metrics"); !strings.Contains(body, "hybridlimit_rules_bad 1") || !strings.Contains(body, "hybridlimit_rules_loads_total 2") {
		t.Error("the metrics do not say so")
	}
}

func TestMetrics(t *testing.T) {
	n := begin(t, "", nil)
	admits(t, n.take, "alice")
	admits(t, n.ask, "alice")
	n.ask("bob")
	code, body := n.get("/metrics")
	if code != http.StatusOK {
		t.Fatal(code)
	}
	for _, line := range []string{
		`hybridlimit_resp_commands_total{outcome="ok"} 10`, `hybridlimit_resp_commands_total{outcome="refused"} 1`,
		`hybridlimit_resp_connections 1`, `hybridlimit_rls_requests_total{outcome="ok"} 11`, `hybridlimit_rls_requests_total{outcome="over_limit"} 1`,
		`hybridlimit_rules_bad 0`, `hybridlimit_rules_entries{kind="descriptor"} 1`, `rule="d@user/day"`, `rule="api"`, `limiter="serve"`, "go_goroutines", "process_",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("%s is missing", line)
		}
	}
	if strings.Contains(body, "alice") {
		t.Error("a key is in the metrics")
	}
}

func TestReadinessWhileItStops(t *testing.T) {
	pause, goOn := make(chan struct{}), make(chan struct{})
	n := begin(t, "", func(o *Options) {
		o.StopDelay = time.Second
		o.sleep = func(time.Duration) { close(pause); <-goOn }
	})
	health := healthpb.NewHealthClient(n.cc)
	status := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		res, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetStatus()
	}
	const name = "envoy.service.ratelimit.v3.RateLimitService"
	if a, b := status(""), status(name); a != healthpb.HealthCheckResponse_SERVING || b != a {
		t.Errorf("%v, %v while it serves", a, b)
	}
	if code, body := n.get("/readyz"); code != http.StatusOK {
		t.Errorf("%d, %s while it serves", code, body)
	}
	done := make(chan error, 1)
	go func() { done <- n.server.Stop() }()
	<-pause
	if a, b := status(""), status(name); a != healthpb.HealthCheckResponse_NOT_SERVING || b != a {
		t.Errorf("%v, %v while it stops", a, b)
	}
	var ready ops.Ready
	code, body := n.get("/readyz")
	if err := json.Unmarshal([]byte(body), &ready); err != nil || code != http.StatusServiceUnavailable || ready.Ready || ready.Why != "stopping" {
		t.Errorf("%d, %s while it stops", code, body)
	}
	if code, _ := n.get("/healthz"); code != http.StatusOK {
		t.Errorf("%d: it is alive", code)
	}
	if !n.take("alice") || !n.ask("alice") {
		t.Error("it does not answer any more while others may not have noticed")
	}
	n.cc.Close()
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	n.stopped = true
	n.redis.Close()
	http.DefaultClient.CloseIdleConnections()
	for _, ln := range []net.Listener{n.server.o.GRPC, n.server.o.RESP, n.server.o.Check, n.server.o.HTTP} {
		if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
			t.Errorf("%v still accepts", ln.Addr())
		}
	}
}

// A client of the rate limit service does not decide how much memory its request takes.
func TestRequestsAreBounded(t *testing.T) {
	n := begin(t, "", nil)
	for _, c := range []struct {
		bytes int
		want  codes.Code
	}{{maxMessage / 2, codes.OK}, {maxMessage + 1, codes.ResourceExhausted}} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := n.rls.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
			Domain:      "d",
			Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: strings.Repeat("v", c.bytes)}}}},
		})
		cancel()
		if status.Code(err) != c.want {
			t.Errorf("a request of %d bytes: %v, want %v", c.bytes, err, c.want)
		}
	}
}

// Clients that connect to the port for gRPC and say nothing, or begin and do not go on, do not
// keep the server from ending in time.
func TestStopEndsSilentClients(t *testing.T) {
	for name, c := range map[string]struct {
		tls  *tls.Config
		says string
		cut  bool // it may be a call that is under way
	}{
		"silent":         {nil, "", false},
		"half":           {nil, "PRI * HT", true},
		"half, with TLS": {new(tls.Config), "\x16\x03\x01", true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rules.yaml")
			write(t, path, limits)
			o := Options{RulesPath: path, GRPC: loopback(t), TLS: c.tls, StopTimeout: patience}
			if c.cut {
				o.StopTimeout = 2 * time.Millisecond
			}
			s, err := Start(o)
			if err != nil {
				t.Fatal(err)
			}
			client, err := net.Dial("tcp", o.GRPC.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := io.WriteString(client, c.says); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the server has heard it", func() bool { return s.callers.heard(c.cut) })
			if err := s.Stop(); (err != nil) != c.cut {
				t.Error(err)
			}
			_ = client.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, client); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
		})
	}
}

// heard reports whether there is a connection that has sent something, or nothing.
func (cs *conns) heard(something bool) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		if c.heard.Load() == something {
			return true
		}
	}
	return false
}

func TestStartFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	good, taken := loopback(t), loopback(t)
	taken.Close()
	for _, c := range []struct {
		rules string
		o     Options
		want  string
	}{
		{limits, Options{}, "address"},
		{limits, Options{RESP: good, StopTimeout: -1}, "StopTimeout"},
		{"rules: []", Options{RESP: loopback(t)}, "rules"},
		{"rules: {api: {algorithm: sliding-log, limit: 10, per: 1m}}", Options{RESP: loopback(t)}, "rules.yaml:1:14: rules.api: "},
		{limits, Options{RESP: loopback(t), Limiter: hybrid.Options{MaxKeys: -1}}, "MaxKeys"},
		{limits, Options{RESP: loopback(t), RESPMaxConns: -1}, "MaxConns"},
	} {
		write(t, path, c.rules)
		c.o.RulesPath = path
		if _, err := Start(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q in it", err, c.want)
		}
	}
	// A bad file is refused before the limiter says anything, as that it is synced.
	write(t, path, "rules: []")
	var logs bytes.Buffer
	if _, err := Start(Options{RulesPath: path, RESP: loopback(t), Logger: slog.New(slog.NewTextHandler(&logs, nil))}); err == nil || logs.Len() > 0 {
		t.Errorf("%v, logged: %s", err, logs.String())
	}
	if _, err := Start(Options{RulesPath: path + ".none", RESP: loopback(t)}); !os.IsNotExist(err) && (err == nil || !strings.Contains(err.Error(), ".none")) {
		t.Errorf("a file that is missing: %v", err)
	}
	if _, err := net.Dial("tcp", good.Addr().String()); err == nil {
		t.Error("a Start that fails leaves its sockets open")
	}
	// A server that cannot serve says so.
	write(t, path, limits)
	s, err := Start(Options{RulesPath: path, RESP: taken})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.Failed():
		if !strings.Contains(err.Error(), "resp") {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("nobody says that a server has failed")
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
