package redistest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BinaryEnv is the environment variable that names the program that servers are started
// by, instead of redis-server: another version, or valkey-server.
const BinaryEnv = "REDISTEST_BINARY"

// Default returns the program that servers are started by: what [BinaryEnv] names, or
// redis-server.
func Default() string {
	if binary := os.Getenv(BinaryEnv); binary != "" {
		return binary
	}
	return "redis-server"
}

// Binaries returns the servers that are installed, each once: the default one first, then
// redis-server and valkey-server.
func Binaries() (list []string) {
	seen := map[string]bool{}
	for _, binary := range []string{Default(), "redis-server", "valkey-server"} {
		path, err := exec.LookPath(binary)
		if err != nil {
			continue
		}
		if is, err := filepath.EvalSymlinks(path); err == nil {
			path = is
		}
		if !seen[path] {
			seen[path], list = true, append(list, binary)
		}
	}
	return list
}

// OnEach runs a test with every server that is installed, by the name of its program. It
// is skipped, or fails, like one that calls [Start] if there is none.
func OnEach(t *testing.T, test func(t *testing.T, binary string)) {
	t.Helper()
	list := Binaries()
	if len(list) == 0 || os.Getenv(BinaryEnv) != "" && list[0] != Default() {
		need(t, ErrNotInstalled)
	}
	for _, binary := range list {
		t.Run(filepath.Base(binary), func(t *testing.T) { test(t, binary) })
	}
}

// ErrNotInstalled reports that there is no redis-server in PATH, or that the
// program asked for is not there.
var ErrNotInstalled = errors.New("redistest: redis-server is not installed")

const (
	// startTimeout bounds the wait for a new server's first answer.
	startTimeout = 10 * time.Second
	// pollEvery is how often a server that is starting is asked.
	pollEvery = 5 * time.Millisecond
	// portTries is how many ports are tried: between finding a free one and
	// the server's bind somebody else may take it.
	portTries = 5
	// maxOutput bounds what is kept of a server's output for error texts.
	maxOutput = 8 << 10
	// busOffset is how far above its port a Cluster node listens for others.
	busOffset = 10_000
)

// Options says how to start a server. The zero value is a plain one.
type Options struct {
	// Args are added to the command line, after the defaults, so that they
	// win: "--maxmemory", "1mb".
	Args []string
	// Binary is the program to start, by name or path. Default: [Default].
	Binary string
}

// Server is a redis-server child process on a free loopback port. It holds its
// data in memory only and dies with its parent (on Linux even when the parent
// is killed). Build one with [Launch] or [Start]; it is safe for concurrent use.
type Server struct {
	port   int
	dir    string
	binary string
	args   []string
	config string // file that a Sentinel keeps its state in; else empty

	mu     sync.Mutex // protects what follows
	proc   *process   // nil while the server is down
	closed bool
}

// Start launches a server for the length of a test, with args added to its
// command line. Without redis-server in PATH the test is skipped; with the
// environment variable CI=true, or with another program in [BinaryEnv], it fails, so
// that nothing is skipped unnoticed.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := Launch(Options{Args: args})
	need(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// need ends a test that cannot have its servers.
func need(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case errors.Is(err, ErrNotInstalled) && os.Getenv("CI") != "true" && os.Getenv(BinaryEnv) == "":
		tb.Skip("needs a real Redis: redis-server is not in PATH")
	case err != nil:
		tb.Fatal(err)
	}
}

// Launch starts a server and waits until it answers. The caller must Close it.
// The error is [ErrNotInstalled] if there is no redis-server.
func Launch(o Options) (*Server, error) { return launch(o, "") }

// launch starts a server, as a Sentinel if there is a configuration for one.
func launch(o Options, sentinel string) (*Server, error) {
	if o.Binary == "" {
		o.Binary = Default()
	}
	if _, err := exec.LookPath(o.Binary); err != nil {
		return nil, ErrNotInstalled
	}
	dir, err := scratch()
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s := &Server{dir: dir, binary: o.Binary, args: slices.Clone(o.Args)}
	if sentinel != "" {
		s.config = filepath.Join(dir, "sentinel.conf")
		if err := os.WriteFile(s.config, []byte(sentinel), 0o600); err != nil {
			s.Close()
			return nil, fmt.Errorf("redistest: %w", err)
		}
	}
	for range portTries {
		if s.port, err = freePort(slices.Contains(o.Args, "--cluster-enabled")); err != nil {
			break
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
		if !strings.Contains(err.Error(), "in use") {
			break
		}
	}
	s.Close()
	return nil, err
}

// freePort returns a loopback port that was free a moment ago, and for a node
// of a Cluster also the one on which it talks to the others.
func freePort(cluster bool) (port int, err error) {
	for range 100 {
		if port, err = listenOnce(0); err != nil || !cluster {
			break
		}
		if port+busOffset > math.MaxUint16 {
			err = errors.New("redistest: no port that leaves room for the cluster bus")
			continue
		}
		if _, err = listenOnce(port + busOffset); err == nil {
			break
		}
	}
	return port, err
}

// listenOnce takes a loopback port, any if it is 0, and lets go of it again.
func listenOnce(port int) (int, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return 0, fmt.Errorf("redistest: %w", err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// loopback is where all servers listen.
const loopback = "127.0.0.1"

// scratch makes a directory, in memory if there is such a place. Sentinels and
// nodes of a Cluster write down what they decide, and serve nobody until the
// disk has it: up to 0.7 s on a busy machine.
func scratch() (dir string, err error) {
	if dir, err = os.MkdirTemp("/dev/shm", "redistest-"); err != nil {
		dir, err = os.MkdirTemp("", "redistest-")
	}
	return dir, err
}

// Addr returns the server's address, "127.0.0.1:port". It stays the same
// across restarts.
func (s *Server) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port)) }

// Restart starts the server again on the same port, empty and without its
// script cache, and waits until it answers. A server that still runs is killed
// first. What a Sentinel or a node of a Cluster knows of the others it keeps.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("redistest: server is closed")
	}
	s.killLocked()
	p, err := startProcess(s.binary, s.command())
	if err != nil {
		return err
	}
	s.proc = p
	if err := p.awaitAnswer(s.Addr()); err != nil {
		s.killLocked()
		return err
	}
	return nil
}

// command returns the command line.
func (s *Server) command() (args []string) {
	if s.config != "" {
		args = []string{s.config, "--sentinel"}
	}
	args = append(args,
		"--port", strconv.Itoa(s.port), "--bind", loopback,
		"--save", "", "--appendonly", "no", "--dir", s.dir)
	return append(args, s.args...)
}

// Kill ends the server as a crash would (SIGKILL), whatever state it is in,
// and waits until it is gone. On a server that is down it does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
}

func (s *Server) killLocked() {
	if s.proc == nil {
		return
	}
	s.proc.kill()
	s.proc = nil
}

// Freeze stops the server in its tracks (SIGSTOP): connections stay open and
// new ones are accepted by the kernel, but nothing is answered until Thaw.
func (s *Server) Freeze() error { return s.signal(freeze) }

// FreezeOrSkip is Freeze for a test, which is skipped on systems that cannot. A
// server that could have been frozen and was not is a failure: else a test of
// an outage would pass where the server had died.
func (s *Server) FreezeOrSkip(tb testing.TB) {
	tb.Helper()
	switch err := s.Freeze(); {
	case errors.Is(err, errors.ErrUnsupported):
		tb.Skip(err)
	case err != nil:
		tb.Fatal(err)
	}
}

// Thaw lets a frozen server go on (SIGCONT).
func (s *Server) Thaw() error { return s.signal(thaw) }

func (s *Server) signal(send func(*os.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("redistest: server is not running")
	}
	if err := send(s.proc.cmd.Process); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}

// Close kills the server, frozen or not, and removes its directory. Closing
// twice is allowed.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
	if !s.closed {
		s.closed = true
		_ = os.RemoveAll(s.dir)
	}
}

// process is one run of redis-server.
type process struct {
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when the process is gone
}

func startProcess(binary string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	dieWithParent(p.cmd)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return p, nil
}

// run starts the process and waits for its end on one thread: Linux sends the
// death signal when the thread that started the child ends, not the process.
func (p *process) run(started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // killed: the error is the signal
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.done
}

// awaitAnswer waits until the server answers PING.
func (p *process) awaitAnswer(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !answers(ctx, addr) {
		select {
		case <-p.done:
			return fmt.Errorf("redistest: redis-server ended while starting: %s", p.out.String())
		case <-ctx.Done():
			return fmt.Errorf("redistest: redis-server does not answer within %v: %s", startTimeout, p.out.String())
		case <-tick.C:
		}
	}
	return nil
}

// answers tells whether the server at addr serves: it says PONG, or that it
// wants a password.
func answers(ctx context.Context, addr string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	reply := string(buf[:n])
	return err == nil && (strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH"))
}

// output keeps the end of what a process prints.
type output struct {
	mu  sync.Mutex
	buf []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, p...)
	if over := len(o.buf) - maxOutput; over > 0 {
		o.buf = append(o.buf[:0], o.buf[over:]...)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.buf))
}
