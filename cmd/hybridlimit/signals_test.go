package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is hybridlimit serve as a process of its own.
type process struct {
	*testing.T
	cmd  *exec.Cmd
	addr map[string]string // by protocol
	log  *os.File          // the end of its standard error that is read
	done chan struct{}     // closed: the process has ended
	read chan struct{}     // closed: so has its log

	mu    sync.Mutex // protects lines
	lines []string   // that were logged
}

// start starts the program with a limit of open files, and waits until it serves.
func start(t *testing.T, files string, args ...string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals")
	}
	rd, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-c", `ulimit -n ` + files + `; exec "$0" "$@"`, self, "serve", "--grpc=127.0.0.1:0", "--resp=127.0.0.1:0", "--check=127.0.0.1:0", "--http=127.0.0.1:0"}, args...)
	p := &process{T: t, cmd: exec.Command("sh", args...), addr: map[string]string{}, log: rd, done: make(chan struct{}), read: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), asProgram+"=1"), wr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wr.Close()
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done; rd.Close(); <-p.read })
	listening := make(chan bool)
	go func() {
		defer close(p.read)
		for text := bufio.NewScanner(rd); text.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, text.Text())
			p.mu.Unlock()
			var line struct{ Protocol, Address string }
			if json.Unmarshal(text.Bytes(), &line) == nil && line.Protocol != "" {
				if p.addr[line.Protocol] = line.Address; len(p.addr) == 4 {
					close(listening)
				}
			}
		}
	}()
	select {
	case <-listening:
	case <-time.After(time.Minute):
		t.Fatalf("it does not listen: %s", p.logged())
	}
	return p
}

// logged returns what the process has logged.
func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

func (p *process) signal(s os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// until waits until a condition holds, or the process has ended.
func (p *process) until(what string, holds func() bool) {
	p.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.done:
			p.Fatalf("it has ended: %v, not: %s\n%s", p.cmd.ProcessState, what, p.logged())
		default:
		}
		if time.Now().After(deadline) {
			p.Fatalf("still not: %s\n%s", what, p.logged())
		}
	}
}

// ends waits for the end of the process and checks its exit code.
func (p *process) ends(want int) {
	p.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.Fatalf("it does not end\n%s", p.logged())
	}
	<-p.read
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.Errorf("%v, want exit code %d\n%s", p.cmd.ProcessState, want, p.logged())
	}
}

// badClient sends what the server logs.
func badClient(t *testing.T, addr string) {
	t.Helper()
	if got := redisDo(t, addr, "*99999"); !strings.HasPrefix(got, "-ERR Protocol error") {
		t.Errorf("%q, want an error", got)
	}
}

// Fault 97: the server goes on when nothing reads its log any more, and ends as usual.
func TestServeWithoutAReaderOfItsLog(t *testing.T) {
	rules := rulesAt(t, someRules)
	p := start(t, "1024", "--alone", "--rules", rules)
	p.log.Close()
	badClient(t, p.addr["resp"])
	if err := os.WriteFile(rules, []byte(strings.Replace(someRules, "burst: 3", "burst: 4", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.until("the new rules are in force", func() bool { return answer(t, p.addr["resp"], "HL.PEEK api alice")[1] == "4" })
	badClient(t, p.addr["resp"])
	p.signal(os.Interrupt)
	p.ends(exitOK)
}

// answer sends a command and returns the numbers of its reply.
func answer(t *testing.T, addr, command string) []string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, command+"\r\nQUIT\r\n"); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(c)
	numbers := strings.Split(strings.ReplaceAll(string(reply), ":", ""), "\r\n")
	if err != nil || len(numbers) != 8 || numbers[0] != "*5" {
		t.Fatalf("%q, %v", reply, err)
	}
	return numbers[1:6]
}

// Fault 97: SIGHUP reads the rules file again, once for each signal, and ends nothing. What was
// admitted stays known.
func TestServeHangup(t *testing.T) {
	rules := rulesAt(t, strings.Replace(someRules, "per: 1m", "per: 1000h", 1))
	p := start(t, "1024", "--alone", "--rules", rules, "--stop-delay=500ms")
	answer(t, p.addr["resp"], "HL.TAKE api alice 2")
	for i := range 3 {
		p.signal(syscall.SIGHUP)
		p.until("the file is read again", func() bool { return strings.Count(p.logged(), "read again") == i+1 })
	}
	if err := os.WriteFile(rules, []byte("rules: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.until("a bad file is refused", func() bool { return strings.Contains(p.logged(), "read again and is refused") })
	if got := answer(t, p.addr["resp"], "HL.PEEK api alice"); got[1] != "3" || got[2] != "1" {
		t.Errorf("%v, want 1 of 3 left", got)
	}
	p.signal(os.Interrupt)
	p.until("it stops", func() bool { return strings.Contains(p.logged(), "serve: stopping") })
	p.signal(syscall.SIGHUP) // no reason to skip the last reports
	p.ends(exitOK)
}

// Faults 97, 113: the end while Redis refuses connections is one true line. It is a failure only if units
// could not be reported.
func TestServeEndsWithoutRedis(t *testing.T) {
	for _, units := range []int{0, 2} {
		p := start(t, "1024", "--redis=redis://127.0.0.1:1", "--rules", rulesAt(t, someRules), "--stop-timeout=300ms")
		want, code := `"INFO","msg":"serve: stopped"`, exitOK
		for range units {
			answer(t, p.addr["resp"], "HL.TAKE api alice")
			want, code = "2 admitted units were not reported to redis: hybrid: redis is unavailable: refused: ", exitFailed
		}
		p.until("degraded", func() bool { return strings.Contains(p.logged(), "degraded") })
		p.signal(syscall.SIGTERM)
		p.ends(code)
		_, end, _ := strings.Cut(p.logged(), "serve: stopping")
		if lines := strings.Split(end, "\n"); len(lines) != 2 || !strings.Contains(lines[1], want) || strings.Contains(end, "hangs") {
			t.Errorf("%d units: %s", units, end)
		}
	}
}

// Fault 97: the server goes on with all file descriptors used up, and serves again when there
// are some.
func TestServeWithoutFileDescriptors(t *testing.T) {
	p := start(t, "60", "--alone", "--rules", rulesAt(t, someRules))
	answer(t, p.addr["resp"], "HL.TAKE api alice")
	var clients []net.Conn
	for range 100 { // the system connects them, whatever the process can do
		c, err := net.Dial("tcp", p.addr["resp"])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	p.until("there are none left", func() bool { return strings.Contains(p.logged(), "cannot accept") })
	p.signal(syscall.SIGHUP)
	p.until("the file cannot be read", func() bool { return strings.Contains(p.logged(), "read again and is refused") })
	for _, c := range clients {
		c.Close()
	}
	if got := answer(t, p.addr["resp"], "HL.PEEK api alice"); got[1] != "3" {
		t.Errorf("%v, want a limit of 3", got)
	}
	p.signal(syscall.SIGHUP)
	p.until("the file is read", func() bool { return strings.Contains(p.logged(), "was read again\"") })
	p.signal(os.Interrupt)
	p.ends(exitOK)
}
