package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Each of them would take the memory, the time or the life of a server that believes it.
func TestAClientThatSendsTooMuchIsSentAwayWithAReason(t *testing.T) {
	s, addr := listen(t, Options{})
	for i, bad := range []string{"*1\r\n$536870912\r\n", strings.Repeat("x", 2*maxCommand)} {
		c := connect(t, addr)
		go func() { _, _ = c.Write([]byte(encode("PING") + bad)) }() // may be cut off
		if got := c.reply(); got != "PONG" {
			t.Errorf("%d: what came before: %v", i, got)
		}
		c.wantError(c.reply(), "ERR Protocol error: ")
		c.wantEnd()
	}
	if n := s.Stats().Protocol; n != 2 {
		t.Errorf("%d clients were sent away, want 2", n)
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
	s, addr := listen(t, Options{})
	idle := connect(t, addr)
	idle.want("PING", "PONG")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 2 { // a second time nothing happens
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	idle.wantEnd()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the server still accepts")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln); err != nil {
		t.Errorf("a server that has stopped serves: %v", err)
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
	synctest.Test(t, func(t *testing.T) {
		s, connect := piped(t, Options{})
		c := connect()
		if _, err := io.WriteString(c, encode("PING")); err != nil { // and never reads the answer
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		if n, err := c.Read(make([]byte, 100)); err == nil {
			t.Errorf("it still gets %d bytes", n)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	lim, _ := alone(t)
	for _, o := range []Options{{}, {Limiter: lim}, {Limiter: lim, Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 1, per: 1s}}"), MaxConns: -1}, {Limiter: lim, Rules: ruleset(t, "rules: {api: {algorithm: token-bucket, limit: 1, per: 1s}}"), IdleTimeout: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
