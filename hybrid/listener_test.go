package hybrid

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// wiredListener is a listener, and the connection by which it receives.
type wiredListener struct {
	*listener
	store *redisstore.Store
	redis *miniredis.Miniredis
	wakes atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	dials int
	down  bool // dials are refused
	hang  bool // dials take until they are given up
}

func (e *wiredListener) dial(ctx context.Context, _, _ string) (conn net.Conn, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dials++
	switch {
	case e.hang:
		e.mu.Unlock()
		<-ctx.Done()
		e.mu.Lock()
		return nil, ctx.Err()
	case e.down:
		return nil, syscall.ECONNREFUSED
	}
	conn, err = e.redis.Dial()
	e.conns = append(e.conns, conn)
	return conn, err
}

// set says what becomes of dials, and cuts all connections.
func (e *wiredListener) set(down, hang bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down, e.hang, e.dials = down, hang, 0
	for _, conn := range e.conns {
		if conn != nil {
			conn.Close()
		}
	}
	e.conns = nil
}

// newWiredListener returns a listener to a server in the bubble. A second client publishes.
func newWiredListener(t *testing.T) (e *wiredListener, say func(channel, payload string)) {
	t.Helper()
	e = &wiredListener{redis: miniredis.NewMiniRedis()}
	t.Cleanup(e.redis.Close)
	client := func(dial func(context.Context, string, string) (net.Conn, error)) *redisstore.Store {
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Dialer: dial, ContextTimeoutEnabled: true, DialerRetries: 1, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { rdb.Close() })
		s, err := redisstore.NewStore(rdb, redisstore.Options{CommandTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	sender := client((&wiredListener{redis: e.redis}).dial)
	e.store = client(e.dial)
	e.listener = newListener(e.store, func() { e.wakes.Add(1) })
	t.Cleanup(e.close)
	return e, func(channel, payload string) {
		t.Helper()
		if err := sender.Publish(context.Background(), redisstore.Message{Channel: channel, Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
}

// listenInBubble runs a test with a listener in a bubble.
func listenInBubble(t *testing.T, test func(t *testing.T, e *wiredListener, say func(channel, payload string))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, say := newWiredListener(t)
		test(t, e, say)
	})
}

// hears waits until nothing happens any more, and checks what was heard.
func (e *wiredListener) wants(t *testing.T, want received) {
	t.Helper()
	synctest.Wait()
	if got := e.take(); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Fatalf("heard %.300s, want %.300s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	}
}

// What arrives is handed over at once, in its order, and the driver is woken once for it.
func TestListenerHears(t *testing.T) {
	listenInBubble(t, func(t *testing.T, e *wiredListener, say func(channel, payload string)) {
		e.wants(t, received{})
		e.listen("c", "echo")
		e.wants(t, received{confirmed: true})
		e.wakes.Store(0)
		say("c", "one")
		say("other", "no")
		say("echo", "7")
		say("echo", "6")
		say("echo", "x")
		say("c", "two")
		synctest.Wait()
		if n := e.wakes.Load(); n != 1 {
			t.Errorf("woken %d times for one box", n)
		}
		e.wants(t, received{messages: []string{"one", "two"}, echo: 7})
		e.wants(t, received{})
		say("c", "three")
		synctest.Wait()
		if n := e.wakes.Load(); n != 2 {
			t.Errorf("woken %d times for two boxes", n)
		}
		e.listen("d", "echo2") // forgets what it has not handed over
		e.wants(t, received{confirmed: true})
		say("c", "to nobody")
		say("d", "four")
		e.wants(t, received{messages: []string{"four"}})
		e.listen("", "")
		synctest.Wait()
		say("d", "to nobody")
		e.wants(t, received{})
	})
}

// A mailbox that is not emptied drops further messages, by number and by bytes.
func TestListenerIsBounded(t *testing.T) {
	var wakes int
	l := &listener{channel: "c", echo: "e", wake: func() { wakes++ }}
	for i := range mailboxMessages + 7 {
		l.put(0, "c", fmt.Sprint(i), nil)
		l.put(0, "e", fmt.Sprint(i), nil)
	}
	l.put(0, "elsewhere", "x", nil)
	l.put(1, "c", "of another round", nil)
	h := l.take()
	if len(h.messages) != mailboxMessages || h.dropped != 7 || h.messages[mailboxMessages-1] != fmt.Sprint(mailboxMessages-1) {
		t.Errorf("%d messages to %s, %d dropped", len(h.messages), h.messages[len(h.messages)-1], h.dropped)
	}
	if h.echo != mailboxMessages+6 {
		t.Errorf("echo %d", h.echo)
	}
	for range 6 {
		l.put(0, "c", strings.Repeat("x", mailboxBytes/4), nil)
	}
	l.put(0, "c", "y", nil)
	if h = l.take(); len(h.messages) != 4 || h.dropped != 3 || wakes != 2 {
		t.Errorf("%d messages, %d dropped, %d wakes", len(h.messages), h.dropped, wakes)
	}
}

// A subscription that breaks is made anew, after a pause that grows while that fails. The
// driver is told why, and that there was a gap.
func TestListenerReconnects(t *testing.T) {
	listenInBubble(t, func(t *testing.T, e *wiredListener, say func(channel, payload string)) {
		e.listen("c", "e")
		e.wants(t, received{confirmed: true})
		say("c", "before")
		synctest.Wait()
		e.set(false, false)
		time.Sleep(2*minListenPause + time.Millisecond)
		synctest.Wait()
		if h := e.take(); h.err == nil || !h.confirmed || !slices.Equal(h.messages, []string{"before"}) {
			t.Fatalf("after a gap: %+v", h)
		}
		e.set(true, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if h := e.take(); h.err == nil || h.confirmed {
			t.Fatalf("in an outage: %+v", h)
		}
		e.mu.Lock()
		dials := e.dials
		e.mu.Unlock()
		// The pauses are 100 to 200 ms, twice that, and so on up to 2.5 to 5 s, see run. In a minute:
		// at most 5 that grow, 3.1 s, and (60 - 3.1) / 2.5; at least 5, 6.2 s, and (60 - 6.2) / 5.
		if dials < 5+10 || dials > 1+5+23 {
			t.Errorf("%d dials in a minute", dials)
		}
		e.set(false, false)
		time.Sleep(maxListenPause + time.Millisecond)
		synctest.Wait()
		if h := e.take(); !h.confirmed {
			t.Fatalf("after the outage: %+v", h)
		}
		say("c", "after")
		e.wants(t, received{messages: []string{"after"}})
		time.Sleep(listenSilence + 2*minListenPause)
		synctest.Wait()
		if h := e.take(); h.err == nil || !h.confirmed {
			t.Fatalf("after silence: %+v", h)
		}
	})
}

// A round that begins ends a pause, a read and a dial of the one before, and so does close.
func TestListenerClosesAtOnce(t *testing.T) {
	for name, state := range map[string]func(e *wiredListener){
		"idle":    func(e *wiredListener) {},
		"reading": func(e *wiredListener) { e.listen("c", "e") },
		"pausing": func(e *wiredListener) { e.set(true, false); e.listen("c", "e") },
		"dialing": func(e *wiredListener) { e.set(false, true); e.listen("c", "e") },
	} {
		t.Run(name, func(t *testing.T) {
			listenInBubble(t, func(t *testing.T, e *wiredListener, say func(channel, payload string)) {
				start := time.Now()
				state(e)
				synctest.Wait()
				e.set(false, false)
				e.listen("d", "e")
				if name != "reading" { // its connection was cut, but that round is over
					e.wants(t, received{confirmed: true})
				}
				state(e)
				synctest.Wait()
				e.close()
				e.close()
				e.listen("c", "e")
				if d := time.Since(start); d > 0 {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}
