package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(LateDial)) }

// client speaks to Redis line by line: the package must not need a client.
type client struct {
	t    testing.TB
	conn net.Conn
	rd   *bufio.Reader
}

func connect(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn, rd: bufio.NewReader(conn)}
}

// send writes a pipeline of commands, each a line of words.
func (c *client) send(commands ...string) {
	c.t.Helper()
	var b strings.Builder
	for _, cmd := range commands {
		words := strings.Fields(cmd)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		c.t.Fatal(err)
	}
}

// line reads one line within a time.
func (c *client) line(within time.Duration) (string, error) {
	c.conn.SetReadDeadline(time.Now().Add(within))
	s, err := c.rd.ReadString('\n')
	return strings.TrimRight(s, "\r\n"), err
}

func (c *client) want(want string) {
	c.t.Helper()
	if got, err := c.line(5 * time.Second); err != nil || got != want {
		c.t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

func (c *client) wantClosed() {
	c.t.Helper()
	got, err := c.line(5 * time.Second)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %q, %v, want the connection closed", got, err)
	}
}

func (c *client) wantSilence() {
	c.t.Helper()
	if got, err := c.line(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %q, %v, want silence", got, err)
	}
}

func TestServerLife(t *testing.T) {
	s := Start(t, "--maxmemory", "64mb")
	c := connect(t, s.Addr())
	c.send("CONFIG GET maxmemory")
	for _, want := range []string{"*2", "$9", "maxmemory", "$8", "67108864"} {
		c.want(want)
	}
	c.send("SET a 1")
	c.want("+OK")
	s.Kill()
	s.Kill()
	c.wantClosed()
	if err := s.Freeze(); err == nil {
		t.Error("froze a server that is down")
	}
	addr := s.Addr()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr {
		t.Errorf("moved from %s to %s", addr, s.Addr())
	}
	c = connect(t, addr)
	c.send("EXISTS a")
	c.want(":0")
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	c.send("EXISTS a")
	c.wantSilence()
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	c.want(":0")
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	s.Close() // of a frozen server
	s.Close()
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("directory left behind: %v", err)
	}
	if err := s.Restart(); err == nil {
		t.Error("restarted a closed server")
	}
}

func TestLaunchReportsBadArgs(t *testing.T) {
	Start(t).Close()
	_, err := Launch(Options{Args: []string{"--no-such-option", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("error %v does not say what redis-server said", err)
	}
	t.Setenv("PATH", "")
	t.Setenv(BinaryEnv, "")
	if _, err := Launch(Options{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("without redis-server: %v", err)
	}
}

func wire(t *testing.T) (*Server, *Proxy) {
	t.Helper()
	s := Start(t)
	p, err := NewProxy(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return s, p
}

func TestProxyPasses(t *testing.T) {
	_, p := wire(t)
	c := connect(t, p.Addr())
	c.send("SET a 1", "INCR a", "GET a")
	for _, want := range []string{"+OK", ":2", "$1", "2"} {
		c.want(want)
	}
	if n := p.Conns(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	big := strings.Repeat("x", 300_000) // beyond every buffer
	c.send("SET b "+big, "GET b", "GET nothing", "HELLO 3")
	for _, want := range []string{"+OK", "$300000", big, "$-1", "%7"} {
		c.want(want)
	}
}

func TestProxyLoses(t *testing.T) {
	s, p := wire(t)
	direct := connect(t, s.Addr())
	p.DropRequests(1)
	p.CutReplies(1)
	c := connect(t, p.Addr())
	c.send("PING") // setting up does not count
	c.want("+PONG")
	c.send("INCR a", "INCR a")
	c.wantClosed()
	direct.send("EXISTS a")
	direct.want(":0")
	c = connect(t, p.Addr())
	c.send("INCR a", "INCR a")
	c.wantClosed()
	direct.send("GET a")
	direct.want("$1")
	direct.want("2")
	if requests, replies := p.Lost(); requests != 1 || replies != 1 {
		t.Errorf("lost %d requests and %d replies", requests, replies)
	}
	c = connect(t, p.Addr())
	c.send("INCR a")
	c.want(":3")
}

func TestProxyDoublesAndTears(t *testing.T) {
	_, p := wire(t)
	c := connect(t, p.Addr())
	p.Double(1)
	c.send("INCR a", "INCR a")
	c.want(":3")
	c.want(":4")
	one := len("*2\r\n$4\r\nINCR\r\n$1\r\na\r\n")
	p.Tear(2*one+7, -6) // two of three requests, then one and a half replies
	c.send("INCR a", "INCR a", "INCR a")
	c.wantClosed()
	c = connect(t, p.Addr())
	c.send("INCR a", "INCR a")
	c.want(":7")
	if rest, err := c.line(time.Second); err != io.EOF || rest != ":8" {
		t.Errorf("%q, %v, want half a reply", rest, err)
	}
	c = connect(t, p.Addr())
	c.send("GET a")
	c.want("$1")
	c.want("8")
	if p.Doubled() != 1 || p.Torn() != 2 {
		t.Errorf("%d exchanges doubled, %d torn", p.Doubled(), p.Torn())
	}
}

func TestProxyRefusesAndSwallows(t *testing.T) {
	_, p := wire(t)
	c := connect(t, p.Addr())
	c.send("INCR a")
	c.want(":1")
	p.BlackHole(true)
	c.send("INCR a")
	c.wantSilence()
	fresh := connect(t, p.Addr())
	fresh.send("PING")
	fresh.wantSilence()
	p.BlackHole(false)
	c.wantClosed()
	c = connect(t, p.Addr())
	c.send("INCR a")
	c.want(":2")
	p.Refuse(true)
	c.wantClosed()
	connect(t, p.Addr()).wantClosed()
	p.Refuse(false)
	c = connect(t, p.Addr())
	p.Delay(50 * time.Millisecond)
	start := time.Now()
	c.send("INCR a")
	c.want(":3")
	if d := time.Since(start); d < 50*time.Millisecond {
		t.Errorf("delayed by %v only", d)
	}
	p.Delay(0)
	p.Cut()
	c.wantClosed()
	other := Start(t)
	p.SetTarget(other.Addr())
	c = connect(t, p.Addr())
	c.send("INCR a")
	c.want(":1")
	other.Kill()
	connectAndFail(t, p.Addr())
}

func connectAndFail(t *testing.T, addr string) {
	t.Helper()
	c := connect(t, addr)
	c.send("INCR a")
	c.wantClosed()
}
