package hybrid

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// Bounds of a listener.
const (
	mailboxMessages = 1024
	mailboxBytes    = 4 << 20 // of messages
	mailboxEchoes   = 16      // a heartbeat has one
	maxEchoBytes    = 256
	// listenSilence is how long a subscription may hear nothing. It hears an echo with each
	// heartbeat, and the longest interval of these is a minute.
	listenSilence = 3 * time.Minute
	// The pause before a broken subscription is made anew: longer each time until one is
	// confirmed.
	minListenPause = 100 * time.Millisecond
	maxListenPause = 5 * time.Second
)

// heard is what a listener has heard since it was asked before.
type heard struct {
	messages []string // payloads, in order
	echoes   []string
	dropped  int // messages, the oldest ones, for which there was no room
	// confirmed: a subscription has begun, after that with err if there is one.
	confirmed bool
	err       error // why the latest subscription that has ended did
}

// listener hears what other nodes publish, and keeps it until the driver takes it. It is
// safe for concurrent use. Build one with newListener, and close it.
type listener struct {
	store *redisstore.Store
	wake  func()
	ended chan struct{} // closed: the goroutine has ended
	nudge chan struct{} // has room for one: round has changed

	mu       sync.Mutex
	channel  string // "": none
	echo     string
	round    int // of listen and stop; what an earlier round hears is of no interest
	stopped  bool
	sub      *redisstore.Subscription // of this round, nil: none
	box      heard
	boxBytes int  // of its messages
	waiting  bool // there is something in the box
}

// newListener starts a listener that listens to nothing yet. It calls wake, which must not
// block, when something arrives and nothing else has been waiting to be taken.
func newListener(store *redisstore.Store, wake func()) *listener {
	l := &listener{store: store, wake: wake, ended: make(chan struct{}), nudge: make(chan struct{}, 1)}
	go l.run()
	return l
}

// listen subscribes to a channel and to that of the node's own echoes, instead of what it
// has listened to before, and forgets what was heard there. An empty channel: to none. It
// does not wait for the network.
func (l *listener) listen(channel, echo string) { l.change(channel, echo, false) }

// stop ends the goroutine, without waiting for that.
func (l *listener) stop() { l.change("", "", true) }

// close ends the goroutine. It waits for a client that is about to connect as long as that
// takes to notice.
func (l *listener) close() {
	l.stop()
	<-l.ended
}

// change begins a round.
func (l *listener) change(channel, echo string, stop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.channel, l.echo, l.stopped = channel, echo, l.stopped || stop
	l.round++
	l.box, l.boxBytes, l.waiting = heard{}, 0, false
	if l.sub != nil {
		l.sub.Close()
		l.sub = nil
	}
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// take returns what has been heard since it was called before.
func (l *listener) take() heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.box
	l.box, l.boxBytes, l.waiting = heard{}, 0, false
	return h
}

// run subscribes again and again until the listener is stopped.
func (l *listener) run() {
	defer close(l.ended)
	pause := 2 * minListenPause
	for {
		sub, round, stopped := l.subscribe()
		if stopped {
			return
		}
		if sub == nil {
			<-l.nudge
			continue
		}
		if l.hear(sub, round) {
			pause = 2 * minListenPause
		}
		// Also after it was confirmed: a server may hang up each time.
		l.sleep(pause/2 + rand.N(pause/2))
		pause = min(2*pause, maxListenPause)
	}
}

// subscribe returns a subscription of this round, nil if nothing is to be listened to.
func (l *listener) subscribe() (sub *redisstore.Subscription, round int, stopped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.nudge: // this round has been noticed
	default:
	}
	if l.channel != "" && !l.stopped {
		l.sub = l.store.Subscribe(l.channel, l.echo)
	}
	return l.sub, l.round, l.stopped
}

// sleep pauses for d, or until a round begins.
func (l *listener) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.nudge:
	}
}

// hear reads a subscription until it ends, and reports whether it was confirmed.
func (l *listener) hear(sub *redisstore.Subscription, round int) (confirmed bool) {
	defer sub.Close()
	for {
		channel, payload, err := sub.Receive(listenSilence)
		confirmed = confirmed || err == nil && channel == ""
		if !l.put(round, channel, payload, err) {
			return confirmed
		}
	}
}

// put keeps what a subscription has said, and reports whether it may say more.
func (l *listener) put(round int, channel, payload string, err error) bool {
	l.mu.Lock()
	if round != l.round {
		l.mu.Unlock()
		return false
	}
	first := !l.waiting
	l.waiting = true
	switch {
	case err != nil:
		l.box.err, l.box.confirmed, l.sub = err, false, nil
	case channel == "":
		l.box.confirmed = true
	case channel == l.channel:
		l.keep(payload)
	case channel == l.echo && len(payload) <= maxEchoBytes:
		if len(l.box.echoes) == mailboxEchoes {
			l.box.echoes = l.box.echoes[1:]
		}
		l.box.echoes = append(l.box.echoes, payload)
	}
	l.mu.Unlock()
	if first {
		l.wake()
	}
	return err == nil
}

// keep keeps a message, and drops the oldest ones if that needs their room.
func (l *listener) keep(payload string) {
	if len(payload) > mailboxBytes {
		l.box.dropped++
		return
	}
	b := &l.box
	for len(b.messages) == mailboxMessages || l.boxBytes+len(payload) > mailboxBytes {
		l.boxBytes -= len(b.messages[0])
		b.messages[0] = "" // or the array would keep it alive
		b.messages = b.messages[1:]
		b.dropped++
	}
	b.messages = append(b.messages, payload)
	l.boxBytes += len(payload)
}
