// Package programtest runs a server of the documentation as its readers do: as a process of
// its own, with a Redis, until somebody presses Ctrl-C.
package programtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// redisAddr and serverAddr are where the programs expect Redis, and listen.
	redisAddr, serverAddr = `"localhost:6379"`, `":8080"`
	// patience is how long a program has for what takes it milliseconds.
	patience = time.Minute
	// pollEvery is the time between two looks.
	pollEvery = 10 * time.Millisecond
	// portTries is how many ports are tried: somebody else may take one that was free.
	portTries = 5
)

// Program is a server that runs. It is not safe for concurrent use.
type Program struct {
	tb     testing.TB
	cmd    *exec.Cmd
	url    string
	stderr text
	done   chan struct{}
}

// text is what a process has written so far. It is safe for concurrent use.
type text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// Start builds the main.go of the current directory and starts it. Only the addresses in it
// are replaced: that of Redis by redis, and its own by one that is free. It returns when the
// server answers.
func Start(tb testing.TB, redis string) *Program {
	tb.Helper()
	if runtime.GOOS == "windows" {
		tb.Skip("Windows has no signal that ends a process in an orderly way")
	}
	text, err := os.ReadFile("main.go")
	if err != nil {
		tb.Fatal(err)
	}
	for _, addr := range []string{redisAddr, serverAddr} {
		if strings.Count(string(text), addr) != 1 {
			tb.Fatalf("main.go has not one %s", addr)
		}
	}
	for range portTries {
		addr := freeAddr(tb)
		p := start(tb, strings.NewReplacer(redisAddr, `"`+redis+`"`, serverAddr, `"`+addr+`"`).Replace(string(text)))
		p.url = "http://" + addr
		if p.answers() {
			return p
		}
		if !strings.Contains(p.stderr.String(), "in use") {
			tb.Fatalf("the program has ended: %s", &p.stderr)
		}
	}
	tb.Fatal("no port is free")
	return nil
}

// freeAddr returns a loopback address that was free a moment ago.
func freeAddr(tb testing.TB) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// start builds and starts a program.
func start(tb testing.TB, text string) *Program {
	tb.Helper()
	dir := tb.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	p := &Program{tb: tb, cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }() // how it has ended is asked of cmd.ProcessState
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be gone already
		<-p.done
	})
	return p
}

// answers waits until the server does, and reports false if the process ends before.
func (p *Program) answers() bool {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://")); err == nil {
			conn.Close()
			return true
		}
		select {
		case <-p.done:
			return false
		case <-ctx.Done():
			p.tb.Fatalf("no answer within %v", patience)
		case <-tick.C:
		}
	}
}

// Get asks for a path, as a user if that is not empty, and returns the answer and its body.
func (p *Program) Get(path, user string) (*http.Response, string) {
	p.tb.Helper()
	r, err := http.NewRequest(http.MethodGet, p.url+path, nil)
	if err != nil {
		p.tb.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, "")
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.tb.Fatal(err)
	}
	return resp, string(body)
}

// Await waits until the program has written a text to its standard error.
func (p *Program) Await(text string) {
	p.tb.Helper()
	tick, late := time.NewTicker(pollEvery), time.After(patience)
	defer tick.Stop()
	for !strings.Contains(p.stderr.String(), text) {
		select {
		case <-tick.C:
		case <-late:
			p.tb.Fatalf("%v without %q in\n%s", patience, text, &p.stderr)
		}
	}
}

// Interrupt ends the program as Ctrl-C does, and fails the test unless it ends well. It
// returns what the program has written to its standard error.
func (p *Program) Interrupt() string {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.tb.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		p.tb.Fatalf("still there %v after the signal", patience)
	}
	if !p.cmd.ProcessState.Success() {
		p.tb.Errorf("%v: %s", p.cmd.ProcessState, &p.stderr)
	}
	return p.stderr.String()
}
