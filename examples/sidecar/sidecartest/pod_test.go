package sidecartest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// within is how long a process may take that needs a moment.
const within = 2 * time.Minute

// build compiles the command once for a test.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "hybridlimit")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir = "../../../cmd/hybridlimit"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// server is the limiter of the pod, started as the manifest says but for its addresses.
type server struct {
	cmd       *exec.Cmd
	addresses map[string]string // by protocol
	ended     chan error
}

func start(t *testing.T, binary, addr string) *server {
	t.Helper()
	p := readPod(t)
	limiter, _ := p.container(t, "hybridlimit")
	url := strings.Replace(readRedis(t).value(t, limiter, "HYBRIDLIMIT_REDIS"), "@redis:6379", "@"+addr, 1)
	flags := p.flags(t)
	flags["--rules"] = "../rules.yaml"
	args := []string{"serve"}
	for name, value := range flags {
		if name == "--grpc" || name == "--resp" || name == "--http" {
			value = "127.0.0.1:0"
		}
		args = append(args, name+"="+value)
	}
	s := &server{cmd: exec.Command(binary, args...), addresses: map[string]string{}, ended: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), "HYBRIDLIMIT_REDIS="+url, "HYBRIDLIMIT_CHECK=-") // nobody here asks the last one, and its port may be taken
	logs, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(logs)
		for lines.Scan() {
			var line struct{ Msg, Protocol, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serve: listening" && len(s.addresses) < 3 {
				if s.addresses[line.Protocol] = line.Address; len(s.addresses) == 3 {
					close(ready)
				}
			}
		}
		s.ended <- s.cmd.Wait()
	}()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	select {
	case <-ready:
	case err := <-s.ended:
		t.Fatalf("the server has ended: %v", err)
	case <-time.After(within):
		t.Fatal("the server does not listen")
	}
	return s
}

// get returns the status and the body of a path for probes.
func (s *server) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + s.addresses["http"] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// python runs a program that can import client.py.
func python(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("python3 is not installed")
	}
	cmd := exec.Command(interpreter, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=..", "PYTHONDONTWRITEBYTECODE=1")
	text, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// TestPod starts the limiter of the manifest with the rules of the example, and asks it what
// Envoy and a program in Python would.
func TestPod(t *testing.T) {
	server := redistest.Start(t, readRedis(t).args(t)...)
	s := start(t, build(t), server.Addr())
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if code, body := s.get(t, path); code != http.StatusOK {
			t.Errorf("%s: %d: %s", path, code, body)
		}
	}
	deadline := time.Now().Add(within)
	for {
		_, body := s.get(t, "/readyz")
		if strings.Contains(body, `"mode":"synced"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %s", body)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Run("python", func(t *testing.T) { askPython(t, s) })
	t.Run("envoy", func(t *testing.T) { askEnvoy(t, s) })
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("the end: %v", err)
		}
	case <-time.After(within):
		t.Error("the server does not end")
	}
}

// untilRefused is a program that asks until it is refused, and prints each answer.
const untilRefused = `
import sys
from client import Limits
limits = Limits(sys.argv[1], int(sys.argv[2]), 60)
for _ in range(10000):
    answer = limits.throttle("bob", 15, 30, 60)
    print(*answer)
    if answer[0]:
        break
try:
    limits.throttle("bob", 15, 0, 60)
except RuntimeError as err:
    print(err)
`

func askPython(t *testing.T, s *server) {
	host, port, _ := strings.Cut(s.addresses["resp"], ":")
	if out, code := python(t, "../client.py", host, port, "alice"); code != 0 || out != "admitted, 15 of 16 left\n" {
		t.Errorf("%d: %s", code, out)
	}
	began := time.Now()
	out, code := python(t, "-c", untilRefused, host, port)
	// One more comes back every two seconds.
	most := 16 + int(time.Since(began)/(2*time.Second)) + 1
	lines := strings.Split(strings.TrimSpace(out), "\n")
	admitted := len(lines) - 2
	if code != 0 || admitted < 16 || admitted > most {
		t.Fatalf("%d: %d are admitted, of 16 to %d: %s", code, admitted, most, out)
	}
	if lines[0] != "0 16 15 -1 2" || !strings.HasPrefix(lines[admitted], "1 16 0 ") || !strings.HasPrefix(lines[admitted+1], "-ERR count ") {
		t.Errorf("%s", out)
	}
}

func askEnvoy(t *testing.T, s *server) {
	conn, err := grpc.NewClient(s.addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	e := readEnvoy(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ask := func(entries ...*common.RateLimitDescriptor_Entry) *ratelimit.RateLimitResponse {
		t.Helper()
		res, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
			Domain:      e.limits.GetDomain(),
			Descriptors: []*common.RateLimitDescriptor{{Entries: entries}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	one := func(key, value string) *common.RateLimitDescriptor_Entry {
		return &common.RateLimitDescriptor_Entry{Key: key, Value: value}
	}
	// Each descriptor that Envoy sends is one that is limited.
	for _, entries := range e.descriptors(t, "alice") {
		var sent []*common.RateLimitDescriptor_Entry
		for _, entry := range entries {
			sent = append(sent, one(entry.Key, entry.Value))
		}
		if st := ask(sent...).GetStatuses()[0]; st.GetCurrentLimit() == nil || st.GetCode() != ratelimit.RateLimitResponse_OK {
			t.Errorf("%v: %v", entries, st)
		}
	}
	began, admitted := time.Now(), 0
	for admitted < 10_000 && ask(one("api_key", "bob")).GetOverallCode() == ratelimit.RateLimitResponse_OK {
		admitted++
	}
	// Nothing comes back before a unit is a minute old, but for the six seconds of a bucket.
	if took := time.Since(began); admitted < 100 || admitted > 100 && took < 50*time.Second {
		t.Errorf("%d of 100 are admitted in %v", admitted, took)
	}
	if st := ask(one("other", "bob")).GetStatuses()[0]; st.GetCurrentLimit() != nil {
		t.Errorf("a descriptor without a limit: %v", st)
	}
}

// TestFlags looks for the flags of the manifest in what the command says of itself.
func TestFlags(t *testing.T) {
	out, err := exec.Command(build(t), "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name := range readPod(t).flags(t) {
		if !strings.Contains(string(out), fmt.Sprintf(" %s=", name)) {
			t.Errorf("hybridlimit serve has no flag %s", name)
		}
	}
}
