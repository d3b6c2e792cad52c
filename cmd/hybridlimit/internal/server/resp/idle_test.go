package resp

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
)

// pipes is a listener of connections in memory, so that hours take no time.
type pipes struct {
	next chan net.Conn
	over chan struct{}
	once sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.over) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// nobody is a limiter that is never asked. One that is works each second, and hours would take
// long after all.
type nobody struct{ byname.Limiter }

// piped serves in memory until the end of the test, and returns what connects a client.
func piped(t *testing.T, o Options) (*Server, func() net.Conn) {
	t.Helper()
	o.Limiter, o.Rules = nobody{}, func() *rules.Set { return nil }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ln := &pipes{next: make(chan net.Conn), over: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		_ = s.Stop(context.Background())
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, func() net.Conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close() })
		ln.next <- theirs
		return ours
	}
}

// ping reports whether a connection is answered.
func ping(c net.Conn) bool {
	reply := make([]byte, len("+PONG\r\n"))
	_, err1 := io.WriteString(c, encode("PING"))
	_, err2 := io.ReadFull(c, reply)
	return err1 == nil && err2 == nil && string(reply) == "+PONG\r\n"
}

// lasts returns how long it takes until the server ends a silent connection.
func lasts(c net.Conn) time.Duration {
	start := time.Now()
	_, _ = io.Copy(io.Discard, c)
	return time.Since(start)
}

func TestSilentConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := piped(t, Options{IdleTimeout: 10 * time.Minute})
		never, once, half, often := connect(), connect(), connect(), connect()
		var wg sync.WaitGroup
		wg.Go(func() {
			if d := lasts(never); d != 10*time.Minute {
				t.Errorf("one that sends nothing lasts %v", d)
			}
		})
		wg.Go(func() {
			time.Sleep(time.Minute)
			if !ping(once) {
				t.Error("no answer")
			}
			if d := lasts(once); d != 10*time.Minute {
				t.Errorf("one that has sent a command lasts %v", d)
			}
		})
		wg.Go(func() {
			if _, err := io.WriteString(half, "*1\r\n$4\r\nPI"); err != nil {
				t.Error(err)
			}
			if d := lasts(half); d != 10*time.Minute {
				t.Errorf("one that has sent half a command lasts %v", d)
			}
		})
		wg.Go(func() {
			for range 100 {
				time.Sleep(10*time.Minute - time.Millisecond)
				if !ping(often) {
					t.Error("a client that is heard of is sent away")
					return
				}
			}
		})
		wg.Wait()
		if st := s.Stats(); st.Idle != 3 || st.Conns != 1 || st.Protocol != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestWithoutIdleTimeoutSilenceIsNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := piped(t, Options{})
		c := connect()
		time.Sleep(1000 * time.Hour)
		if !ping(c) || s.Stats().Idle != 0 {
			t.Errorf("%+v", s.Stats())
		}
	})
}

// A client that sends and never reads would keep its connection for ever as well.
func TestAClientThatTakesNoAnswersIsSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := piped(t, Options{IdleTimeout: 10 * time.Minute})
		c, start := connect(), time.Now()
		for {
			if _, err := io.WriteString(c, encode("ECHO", strings.Repeat("x", 1000))); err != nil {
				break
			}
		}
		if d := time.Since(start); d != 10*time.Minute {
			t.Errorf("it lasts %v", d)
		}
		synctest.Wait()
		if st := s.Stats(); st.Idle != 1 || st.Conns != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// stopsBetween stops a connection at the moment when it sets its first deadline.
type stopsBetween struct {
	net.Conn
	stop func()
	last time.Time
}

func (s *stopsBetween) SetReadDeadline(t time.Time) error {
	if stop := s.stop; stop != nil {
		s.stop = nil
		stop()
	}
	s.last = t
	return nil
}

// The same, at the worst moment.
func TestStopBetweenDeadlines(t *testing.T) {
	s := &Server{o: Options{IdleTimeout: time.Hour}}
	between := &stopsBetween{}
	c := &conn{Conn: between, server: s}
	between.stop = c.stop
	if c.await(); !between.last.Equal(wakeUp) {
		t.Errorf("a Read that nobody wakes waits until %v", between.last)
	}
}
