package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

const someRules = `
rules:
  api: {algorithm: token-bucket, limit: 60, per: 1m, burst: 3}
`

// rulesAt writes a rules file.
func rulesAt(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serving is hybridlimit serve while it runs, and where it listens by protocol.
type serving struct {
	addr map[string]string
	stop context.CancelFunc
	code chan int
	logs *bytes.Buffer // to be read after the end
}

// runServe starts hybridlimit serve with free ports, and waits until it listens.
func runServe(t *testing.T, args ...string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out, in := io.Pipe()
	s := &serving{addr: map[string]string{}, stop: cancel, code: make(chan int, 1), logs: new(bytes.Buffer)}
	p := &program{ctx: ctx, out: io.Discard, errOut: in, in: strings.NewReader(""), environ: os.Environ()}
	args = append([]string{"serve", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--check", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...)
	go func() {
		code := p.run(args)
		in.Close()
		s.code <- code
	}()
	lines := bufio.NewScanner(io.TeeReader(out, s.logs))
	for len(s.addr) < 4 && lines.Scan() {
		var line struct{ Msg, Protocol, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if line.Msg == "serve: listening" {
			s.addr[line.Protocol] = line.Address
		}
	}
	if len(s.addr) < 4 {
		t.Fatalf("it ends with %d: %s", <-s.code, s.logs)
	}
	go func() {
		for lines.Scan() { // until the pipe is closed
		}
	}()
	return s
}

// end stops it and checks its exit code.
func (s *serving) end(t *testing.T, want int) {
	t.Helper()
	s.stop()
	select {
	case code := <-s.code:
		if code != want {
			t.Errorf("exit code %d, want %d", code, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// redisDo sends a command that is typed, and returns the first line of the reply.
func redisDo(t *testing.T, addr string, lines ...string) (reply string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	rd := bufio.NewReader(c)
	for _, line := range lines {
		if _, err := io.WriteString(c, line+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if reply, err = rd.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return strings.TrimSpace(reply)
}

// Each flag changes what it is for, and nothing else.
func TestServeFlags(t *testing.T) {
	read := func(args ...string) (o server.Options) {
		t.Helper()
		line := new(commands)
		args = append([]string{"serve", "--rules=/r.yaml", "--alone", "--grpc=-", "--resp=-", "--check=-", "--http=-"}, args...)
		if _, err := parserOf(t, line).Parse(args); err != nil {
			t.Fatal(err)
		}
		o, err := line.Serve.options(nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for flag, want := range map[string]func(*server.Options){
		"--rules=/other.yaml":    func(o *server.Options) { o.RulesPath = "/other.yaml" },
		"--allow-removal":        func(o *server.Options) { o.Rules.AllowRemoval = true },
		"--prefix=p":             func(o *server.Options) { o.Limiter.KeyPrefix = "p" },
		"--shards=7":             func(o *server.Options) { o.Limiter.Shards = 7 },
		"--fallback=fair-share":  func(o *server.Options) { o.Limiter.Fallback = hybrid.FairShare },
		"--fallback=full-limit":  func(o *server.Options) { o.Limiter.Fallback = hybrid.FullLimit },
		"--fallback=fail-open":   func(o *server.Options) { o.Limiter.Fallback = hybrid.FailOpen },
		"--fallback=fail-closed": func(o *server.Options) { o.Limiter.Fallback = hybrid.FailClosed },
		"--expected-nodes=5":     func(o *server.Options) { o.Limiter.ExpectedNodes = 5 },
		"--max-keys=9":           func(o *server.Options) { o.Limiter.MaxKeys = 9 },
		"--max-lag=3s":           func(o *server.Options) { o.Limiter.MaxLag = 3 * time.Second },
		"--poll-only":            func(o *server.Options) { o.Limiter.PollOnly = true },
		"--grpc-max-age=8m":      func(o *server.Options) { o.GRPCMaxAge = 8 * time.Minute },
		"--resp-password=secret": func(o *server.Options) { o.RESPPassword = "secret" },
		"--resp-max-conns=11":    func(o *server.Options) { o.RESPMaxConns = 11 },
		"--resp-idle-timeout=7s": func(o *server.Options) { o.RESPIdleTimeout = 7 * time.Second },
		"--charge-refused":       func(o *server.Options) { o.ChargeRefused = true },
		"--shadow":               func(o *server.Options) { o.Shadow = true },
		"--response-headers":     func(o *server.Options) { o.Headers = true },
		"--admin-keys":           func(o *server.Options) { o.Admin.Keys = true },
		"--admin-password=x":     func(o *server.Options) { o.Admin.Password = "x" },
		"--admin-host=a,b":       func(o *server.Options) { o.Admin.Hosts = []string{"a", "b"} },
		"--stop-delay=4s":        func(o *server.Options) { o.StopDelay = 4 * time.Second },
		"--stop-timeout=6s":      func(o *server.Options) { o.StopTimeout = 6 * time.Second },
	} {
		expected := read()
		want(&expected)
		if got := read(flag); !reflect.DeepEqual(got, expected) {
			t.Errorf("%s:\n%+v, want\n%+v", flag, got, expected)
		}
	}
}

// The page says where the server listens unless it is told. Nothing else listens there by default.
func TestDefaultAddresses(t *testing.T) {
	page, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	line := new(commands)
	if _, err := parserOf(t, line).Parse([]string{"serve", "--rules=x"}); err != nil {
		t.Fatal(err)
	}
	for flag, addr := range map[string]string{"--http": line.Serve.HTTP, "--grpc": line.Serve.GRPC, "--resp": line.Serve.RESP, "--check": line.Serve.Check} {
		if !strings.Contains(string(page), "| `"+flag+"` | `"+addr+"` |") || strings.Contains(addr, ":80") {
			t.Errorf("docs/server.md does not say that %s is %s", flag, addr)
		}
	}
	if !strings.Contains(string(page), "port_value: "+strings.TrimPrefix(line.Serve.GRPC, "127.0.0.1:")+"}") {
		t.Error("the Envoy of docs/server.md asks elsewhere")
	}
	description, err := os.ReadFile("internal/server/check/openapi.json")
	if err != nil || !strings.Contains(string(description), `"url": "http://`+line.Serve.Check+`"`) {
		t.Errorf("openapi.json is about another address, %v", err)
	}
}

// Fault 97: nothing is wrong with the flags when another program has the port: a script that runs the
// command again is right to do so.
func TestServeWhereAnotherProgramListens(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--grpc", "--resp", "--check", "--http"} {
		args := []string{"serve", "--alone", "--rules", rulesAt(t, someRules), "--grpc=127.0.0.1:0", "--resp=127.0.0.1:0", "--check=127.0.0.1:0", "--http=127.0.0.1:0"}
		o := cli(t, append(args, flag, taken.Addr().String())...)
		if o.code != exitFailed || !strings.HasPrefix(o.err, "hybridlimit: "+flag+": ") || !strings.Contains(o.err, taken.Addr().String()) {
			t.Errorf("exit code %d, %s", o.code, o.err)
		}
	}
}

func TestServeRefusesWhatItCannotServe(t *testing.T) {
	nowhere := []string{"serve", "--alone", "--rules", rulesAt(t, someRules), "--grpc=-", "--resp=-", "--check=-", "--http=-"}
	cli(t, nowhere...).want(t, exitUsage).says(t, "address")
	cli(t, append(nowhere, "--grpc-max-age=-1s")...).want(t, exitUsage).says(t, "--grpc-max-age is -1s")
}

// A rules file with mistakes is refused before anything else: nothing is said but the mistakes,
// nothing is listened on, and Redis is left alone.
func TestServeRefusesABadFileFirst(t *testing.T) {
	redis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	connected := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := redis.Accept()
			if err != nil {
				close(connected)
				return
			}
			connected <- c
		}
	}()
	// Each address is taken, so that listening would fail with another code.
	taken := redis.Addr().String()
	for _, text := range []string{"rules:\n  api: {algorithm: token-bucket, limit: x, per: 1m}\n", "rules:\n  api: {algorithm: sliding-log, limit: 10, per: 1m}\n"} {
		for _, redis := range []string{"--redis=redis://" + taken, "--alone"} {
			file := rulesAt(t, text)
			o := cli(t, "serve", "--rules", file, redis, "--grpc", taken, "--resp", taken, "--check", taken, "--http", taken, "--log-level=debug").want(t, exitUsage)
			lines := strings.Split(strings.TrimSpace(o.err), "\n")
			if len(lines) != 2 || lines[0] != "hybridlimit: --rules: the file is not valid" || !strings.HasPrefix(lines[1], file+":2:") {
				t.Errorf("%s: %s", redis, o.err)
			}
		}
	}
	redis.Close()
	for c := range connected {
		c.Close()
		t.Error("it has connected to Redis")
	}
	t.Setenv("HYBRIDLIMIT_RULES", "/nowhere/rules.yaml")
	cli(t, "serve", "--alone").want(t, exitUsage).says(t, "--rules: /nowhere/rules.yaml: cannot be read: no such file or directory (from HYBRIDLIMIT_RULES)")
}
