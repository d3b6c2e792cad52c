package deploytest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

const (
	// patience is how long something may take that needs a moment.
	patience = 2 * time.Minute
	// pollEvery is the time between two looks.
	pollEvery = 50 * time.Millisecond
)

// process is a container's command that runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has

	mu     sync.Mutex        // protects what follows
	lines  []string          // what it has printed
	listen map[string]string // where a server of ours listens, by protocol
}

// start runs a command with an environment of its own. It is killed with the test.
func start(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(need(t, program), args...), ended: make(chan struct{}), listen: map[string]string{}}
	p.cmd.Env, p.cmd.Dir = append(env, "PATH="+os.Getenv("PATH")), t.TempDir()
	rd, wr := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = wr, wr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		for lines := bufio.NewScanner(rd); lines.Scan(); {
			p.take(lines.Text())
		}
	}()
	go func() {
		_ = p.cmd.Wait() // how it has ended is asked of cmd.ProcessState
		wr.Close()
		<-printed
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be gone already
		<-p.ended
	})
	return p
}

// take keeps a line, if there are not too many of them.
func (p *process) take(text string) {
	var line struct{ Msg, Protocol, Address string }
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines = append(p.lines, text); len(p.lines) > 1000 {
		p.lines = p.lines[500:]
	}
	if json.Unmarshal([]byte(text), &line) == nil && line.Msg == "serve: listening" {
		p.listen[line.Protocol] = line.Address
	}
}

// printed returns what it has.
func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// at returns where a server of ours listens.
func (p *process) at(protocol string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listen[protocol]
}

// stop asks it to end, as Docker does, and checks that it ends well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s ends with %d: %s", p.cmd.Path, code, p.printed())
		}
	case <-time.After(patience):
		t.Errorf("%s does not end: %s", p.cmd.Path, p.printed())
	}
}

// until waits for something of a process.
func until(t *testing.T, p *process, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(pollEvery) {
		select {
		case <-p.ended:
			t.Fatalf("%s: %s has ended: %s", what, p.cmd.Path, p.printed())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %s", what, patience, p.printed())
		}
	}
}

// environment returns that of a service, with something in it replaced.
func environment(s types.ServiceConfig, oldnew ...string) (env []string) {
	for name, value := range s.Environment {
		env = append(env, name+"="+strings.NewReplacer(oldnew...).Replace(*value))
	}
	return env
}

// healthy runs the health check of a service, with something in it replaced.
func healthy(t *testing.T, s types.ServiceConfig, oldnew ...string) bool {
	t.Helper()
	var args []string
	for _, arg := range s.HealthCheck.Test[1:] {
		args = append(args, strings.NewReplacer(oldnew...).Replace(arg))
	}
	cmd := exec.Command(need(t, args[0]), args[1:]...)
	cmd.Env = environment(s)
	return cmd.Run() == nil
}

// startRedis runs the Redis of compose.yaml, and returns its address.
func startRedis(t *testing.T, p *types.Project) (addr string) {
	t.Helper()
	s := p.Services["redis"]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	redis := start(t, environment(s), s.Command[0], append(s.Command[1:], "--port", port, "--bind", "127.0.0.1")...)
	check := s
	check.HealthCheck = &types.HealthCheckConfig{Test: append([]string{"CMD", s.HealthCheck.Test[1], "-p", port}, s.HealthCheck.Test[2:]...)}
	until(t, redis, "Redis is healthy", func() bool { return healthy(t, check) })
	return addr
}

// startServer runs a server of compose.yaml, and waits until its health check finds it ready.
func startServer(t *testing.T, s types.ServiceConfig, program, redis string) *process {
	t.Helper()
	args := []string{s.Command[0]}
	for name, value := range flags(t, s.Command) {
		if host, _, err := net.SplitHostPort(value); err == nil && host == "0.0.0.0" {
			value = "127.0.0.1:0"
		}
		if name == "--rules" {
			value = inHost(s, value)
		}
		args = append(args, name+"="+value)
	}
	// Unless a flag says so, it listens nowhere else: the ports of its defaults may be taken.
	env := append(environment(s, "redis:6379", redis), "HYBRIDLIMIT_CHECK=-")
	p := start(t, env, program, args...)
	until(t, p, "it listens", func() bool { return p.at("http") != "" && p.at("resp") != "" && p.at("grpc") != "" })
	_, http, _ := net.SplitHostPort(flags(t, s.Command)["--http"])
	until(t, p, "it is healthy", func() bool {
		return healthy(t, s, "/hybridlimit", program, "127.0.0.1:"+http, p.at("http"))
	})
	until(t, p, "it has heard of Redis", func() bool { return strings.Contains(get(t, p, "/readyz"), `"mode":"synced"`) })
	return p
}

// get returns what a server of ours answers to operators.
func get(t *testing.T, p *process, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Get("http://" + p.at("http") + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decides reports whether a server has admitted and refused checks of a rule.
func decides(t *testing.T, p *process, rule string) bool {
	t.Helper()
	page := get(t, p, "/metrics")
	return regexp.MustCompile(`outcome="allowed",rule="`+rule+`"[^ ]* [1-9]`).MatchString(page) && regexp.MustCompile(`outcome="denied",rule="`+rule+`"[^ ]* [1-9]`).MatchString(page)
}
