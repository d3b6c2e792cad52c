package sidecartest

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
// a program in Python would.
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

// refused is a program that asks for all units twice, and then for nonsense.
const refused = `
import sys
from client import Limits
limits = Limits(sys.argv[1], int(sys.argv[2]), 60)
print(limits.throttle("bob", 15, 30, 60, 16)[0], limits.throttle("bob", 15, 30, 60, 16)[0])
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
	if out, code := python(t, "-c", refused, host, port); code != 0 || !strings.HasPrefix(out, "0 1\n-ERR count ") {
		t.Errorf("%d: %s", code, out)
	}
}
