package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestPipelinesAreAnsweredInOrder(t *testing.T) {
	_, addr := listen(t, Options{})
	c := connect(t, addr)
	const n = 20_000
	var b strings.Builder
	for i := range n {
		b.WriteString(encode("ECHO", fmt.Sprint(i)))
	}
	go func() { _, _ = c.Write([]byte(b.String())) }()
	for i := range n {
		if got := c.reply(); got != fmt.Sprint(i) {
			t.Fatalf("reply %d: %v", i, got)
		}
	}
}

func TestCommandsMayArriveByteByByte(t *testing.T) {
	_, addr := listen(t, Options{})
	c := connect(t, addr)
	for _, b := range []byte(encode("PING") + "PING\r\n" + "echo 'a b'\n") {
		c.raw(string(b))
	}
	for _, want := range []string{"PONG", "PONG", "a b"} {
		if got := c.reply(); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// Each of them would take the memory, the time or the life of a server that believes it.
func TestAClientThatSendsTooMuchIsSentAwayWithAReason(t *testing.T) {
	s, addr := listen(t, Options{})
	for i, bad := range []string{
		fmt.Sprintf("*1\r\n$%d\r\n", int64(math.MaxInt64)),
		fmt.Sprintf("*%d\r\n", int64(math.MaxInt64)),
		"*1\r\n$536870912\r\n",
		encode("CL.THROTTLE", strings.Repeat("k", 1<<20), "1", "1", "1"),
		strings.Repeat("x", 2*maxCommand),
		"*1\r\n:1\r\n",
		"\x00*1\r\n\x16\x03\x01\x02\x00\r\n" + strings.Repeat("\x00", 2*maxCommand), // a TLS handshake, say
	} {
		c := connect(t, addr)
		c.raw(encode("PING"))
		go func() { _, _ = c.Write([]byte(bad)) }() // may be cut off
		if got := c.reply(); got != "PONG" {
			t.Errorf("%d: what came before: %v", i, got)
		}
		for {
			v, err := c.read()
			if err != nil {
				t.Errorf("%d: ended without a reason: %v", i, err)
				break
			}
			if e, ok := v.(error); ok && strings.HasPrefix(e.Error(), "ERR Protocol error: ") {
				c.wantEnd()
				break
			}
		}
		c.Close()
	}
	if n := s.Stats().Protocol; n != 7 {
		t.Errorf("%d clients were sent away, want 7", n)
	}
	connect(t, addr).want("PING", "PONG") // and the server lives
}

func TestCommandsBehindTheLastOneAreDropped(t *testing.T) {
	s, addr := listen(t, Options{})
	for _, last := range []string{encode("QUIT"), "POST / HTTP/1.1\r\n", "Host: example.com\r\n"} {
		c := connect(t, addr)
		c.raw(last + encode("CL.THROTTLE", "k", "1", "1", "1000"))
		c.reply()
		c.wantEnd()
	}
	connect(t, addr).want("CL.THROTTLE k 1 1 1000 0", ints(0, 2, 2, -1, 0))
	if st := s.Stats(); st.Commands != 4 {
		t.Errorf("%+v", st)
	}
}

func TestNoMoreConnectionsThanAllowed(t *testing.T) {
	s, addr := listen(t, Options{MaxConns: 2})
	a, b := connect(t, addr), connect(t, addr)
	a.want("PING", "PONG")
	b.want("PING", "PONG")
	c := connect(t, addr)
	for deadline := time.Now().Add(patience); s.Stats().Conns < 3 && s.Stats().TurnedAway < 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a third connection is not noticed")
		}
	}
	if s.Stats().Conns > 2 {
		t.Fatal("there are three connections, and two are allowed")
	}
	c.wantError(c.reply(), "max number of clients")
	c.wantEnd()
	if st := s.Stats(); st.Conns != 2 || st.TurnedAway != 1 {
		t.Errorf("%+v", st)
	}
	a.do("QUIT")
	a.wantEnd()
	for deadline := time.Now().Add(patience); s.Stats().Conns > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a connection that has ended still counts")
		}
	}
	connect(t, addr).want("PING", "PONG")
}

func TestStopLetsClientsFinish(t *testing.T) {
	lim, _ := alone(t)
	s, err := New(Options{Limiter: lim, Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 1, per: 1s}}")})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	idle, half := connect(t, ln.Addr().String()), connect(t, ln.Addr().String())
	idle.want("PING", "PONG")
	half.want("PING", "PONG")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	idle.wantEnd()
	half.wantEnd()
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the server still accepts")
	}
	if err := s.Stop(ctx); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// held is a limiter that lets no check go on before it is told to.
type held struct {
	byname.Limiter
	begun, goOn chan struct{}
}

func (h held) Take(key string, rule *limit.Rule, n int64) limit.Result {
	h.begun <- struct{}{}
	<-h.goOn
	return h.Limiter.Take(key, rule, n)
}

// All commands that have been received when the server stops are answered: what they take
// counts, so the client must hear of it.
func TestStopAnswersWhatItHasReceived(t *testing.T) {
	lim, _ := alone(t)
	h := held{lim, make(chan struct{}, 3), make(chan struct{})}
	s, addr := listen(t, Options{Limiter: h})
	c := connect(t, addr)
	take := encode("CL.THROTTLE", "k", "9", "1", "1000")
	c.raw(take + take + take)
	<-h.begun // all three have been read by now: they are one packet
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Stop(ctx) }()
	for !s.isStopping() { // Stop tells all connections before it gives up the lock for this
		time.Sleep(time.Millisecond)
	}
	close(h.goOn)
	for i := range int64(3) {
		if got, err := c.read(); !reflect.DeepEqual(got, ints(0, 10, 9-i, -1, 1000*(i+1))) {
			t.Fatalf("answer %d: %v, %v", i, got, err)
		}
	}
	c.wantEnd()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStopCutsOffThoseWhoDoNotFinish(t *testing.T) {
	s, addr := listen(t, Options{})
	c := connect(t, addr)
	c.want("PING", "PONG")
	// Never reads, so that the server cannot write.
	echo := encode("ECHO", strings.Repeat("x", 30<<10))
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		for {
			if _, err := c.Write([]byte(echo)); err != nil {
				return
			}
		}
	}()
	same := 0 // looks in a row that have found no progress: it waits for the client
	for deadline, last := time.Now().Add(patience), uint64(0); same < 20; time.Sleep(50 * time.Millisecond) {
		now := s.Stats().Commands
		if same++; now < 2 || now != last {
			last, same = now, 0
		}
		if time.Now().After(deadline) {
			t.Fatal("the server takes what it likes")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	<-flood
}

func TestServeAfterStop(t *testing.T) {
	lim, _ := alone(t)
	s, err := New(Options{Limiter: lim, Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 1, per: 1s}}")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln); err != nil {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	lim, _ := alone(t)
	for _, o := range []Options{{}, {Limiter: lim}, {Limiter: lim, Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 1, per: 1s}}"), MaxConns: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestWithTLS(t *testing.T) {
	cert, err := redistest.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	_, addr := listen(t, Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert.Certificate}}, MaxConns: 1})
	plain := connect(t, addr)
	plain.raw(encode("PING"))
	if first, err := plain.rd.Peek(1); err == nil && first[0] == '+' {
		t.Error("the server answers without TLS")
	}
	plain.Close()
	var c *client
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // until the place is free
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: cert.Pool(), ServerName: "localhost"})
		if err == nil {
			c = over(t, conn)
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	c.want("PING", "PONG")
	c.want("CL.THROTTLE k 1 1 1", ints(0, 2, 1, -1, 1))
}
