package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

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

// The end of the server is not put off by a deadline that a connection sets at that moment.
func TestStopDoesNotWaitForIdleTimeout(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			s, connect := piped(t, Options{IdleTimeout: time.Hour})
			var wg sync.WaitGroup
			for range 4 {
				c := connect()
				wg.Go(func() {
					for ping(c) {
					}
				})
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			if err := s.Stop(ctx); err != nil || time.Since(start) != 0 {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			wg.Wait()
			if st := s.Stats(); st.Idle != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
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

// A client with a pool notices nothing.
func TestPoolsConnectAnew(t *testing.T) {
	s, addr := listen(t, Options{IdleTimeout: time.Hour})
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	for i := range 5 {
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		for deadline := time.Now().Add(patience); s.Stats().Conns > 0; time.Sleep(time.Millisecond) {
			hourIsOver(s)
			if time.Now().After(deadline) {
				t.Fatal("a connection does not end")
			}
		}
	}
	if st := s.Stats(); st.Idle < 5 {
		t.Errorf("%+v", st)
	}
}

// hourIsOver ends the time of each connection that waits for a command.
func hourIsOver(s *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.SetReadDeadline(wakeUp)
	}
}

func TestIdleTimeoutIsChecked(t *testing.T) {
	_, err := New(Options{Limiter: nobody{}, Rules: func() *rules.Set { return nil }, IdleTimeout: -1})
	if err == nil || !strings.Contains(err.Error(), "IdleTimeout") {
		t.Error(errors.Join(err, errors.New("want an error that names the option")))
	}
}
