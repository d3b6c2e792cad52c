package resp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// patience bounds what must happen at once, on any machine.
const patience = time.Minute

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// alone returns a limiter of this process, and its clock.
func alone(t testing.TB) (*hybrid.Limiter, *clock.Manual) {
	t.Helper()
	now := clock.NewManual(start)
	lim, err := hybrid.New(nil, hybrid.Options{Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	return lim, now
}

// ruleset returns a source of the rules of a text.
func ruleset(t testing.TB, text string) func() *rules.Set {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return func() *rules.Set { return set }
}

// listen serves until the end of the test. What o lacks is a limiter of its own and no rules.
func listen(t testing.TB, o Options) (s *Server, addr string) {
	t.Helper()
	if o.Limiter == nil {
		o.Limiter, _ = alone(t)
	}
	if o.Rules == nil {
		o.Rules = func() *rules.Set { return nil }
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, ln.Addr().String()
}

// client is a client that knows nothing but the protocol.
type client struct {
	testing.TB
	net.Conn
	rd *bufio.Reader
}

func connect(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

// raw sends bytes as they are.
func (c *client) raw(text string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.Fatal(err)
	}
}

// encode returns a command as clients send it.
func encode(args ...string) string {
	var text strings.Builder
	text.WriteString(fmt.Sprintf("*%d\r\n", len(args)))
	for _, a := range args {
		text.WriteString(fmt.Sprintf("$%d\r\n%s\r\n", len(a), a))
	}
	return text.String()
}

// do sends a command, its words divided by spaces, and returns the reply.
func (c *client) do(command string) any {
	c.Helper()
	return c.send(strings.Fields(command)...)
}

func (c *client) send(args ...string) any {
	c.Helper()
	c.raw(encode(args...))
	return c.reply()
}

// reply reads a reply: int64, string, []any, nil, or an error reply as an error.
func (c *client) reply() any {
	c.Helper()
	v, err := c.read()
	if err != nil {
		c.Fatalf("no reply: %v", err)
	}
	return v
}

func (c *client) read() (any, error) {
	line, err := c.rd.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	body := line[1:]
	switch line[0] {
	case '+':
		return body, nil
	case '-':
		return fmt.Errorf("%s", body), nil
	case '_':
		return nil, nil
	}
	n, err := strconv.ParseInt(body, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", line, err)
	}
	switch line[0] {
	case ':':
		return n, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(c.rd, text)
		return string(text[:n]), err
	case '%':
		n *= 2
	case '*':
	default:
		return nil, fmt.Errorf("unknown kind of reply: %q", line)
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = c.read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// want checks a reply.
func (c *client) want(command string, want any) {
	c.Helper()
	if got := c.do(command); !reflect.DeepEqual(got, want) {
		c.Fatalf("%s: %v, want %v", command, got, want)
	}
}

// wantError checks that a reply is an error that contains words.
func (c *client) wantError(got any, words ...string) {
	c.Helper()
	err, ok := got.(error)
	if !ok {
		c.Fatalf("%v, want an error", got)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			c.Fatalf("%v, want %q in it", err, w)
		}
	}
}

// wantEnd checks that the server has ended the connection.
func (c *client) wantEnd() {
	c.Helper()
	if v, err := c.read(); err == nil {
		c.Fatalf("the connection goes on: %v", v)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.Fatal("the connection does not end")
	}
}

// ints is a reply of numbers.
func ints(numbers ...int64) any {
	list := make([]any, len(numbers))
	for i, n := range numbers {
		list[i] = n
	}
	return list
}
