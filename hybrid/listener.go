package hybrid

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// Bounds of a listener.
const (
	mailboxMessages = 1024
	mailboxBytes    = 4 << 20 // of messages
	// listenSilence is how long a subscription may receive nothing. It receives an echo with each
	// heartbeat, and the longest interval of these is a minute.
	listenSilence = 3 * time.Minute
	// Bounds of the pause before a broken subscription is made anew. It is longer each time until
	// a subscription is confirmed.
	minListenPause = 100 * time.Millisecond
	maxListenPause = 5 * time.Second
)

// received is what a listener has received since the call of take before.
type received struct {
	messages []string // payloads, in order
	echo     uint64   // largest number of an echo; 0: there was none
	dropped  int      // number of messages, the latest ones, for which there was no room
	// confirmed: a subscription has begun. If err is set, it has begun after the one that ended
	// with err.
	confirmed bool
	err       error // why the latest subscription that has ended has
}

// listener subscribes to what other nodes publish, and keeps it until the driver calls take. It
// is safe for concurrent use. Build one with newListener, and close it.
type listener struct {
	store *redisstore.Store
	wake  func()
	ended chan struct{} // closed: the goroutine has ended
	nudge chan struct{} // has room for one: ends a pause

	mu       sync.Mutex
	channel  string // "": none
	echo     string
	round    int // calls of listen so far; what a subscription of an earlier round receives is ignored
	stopped  bool
	sub      *redisstore.Subscription // of this round, nil: none
	box      received
	boxBytes int  // of its messages
	waiting  bool // the box is not empty
}

// newListener starts a listener without a subscription. It calls wake, which must not block,
// when something arrives in an empty box.
func newListener(store *redisstore.Store, wake func()) *listener {
	l := &listener{store: store, wake: wake, ended: make(chan struct{}), nudge: make(chan struct{}, 1)}
	go l.run()
	return l
}

// listen subscribes to a channel and to that of the node's own echoes. It ends the subscription
// before, and discards what that has received. With an empty channel it subscribes to none. It
// does not wait for the network.
func (l *listener) listen(channel, echo string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.channel, l.echo = channel, echo
	l.round++
	l.box, l.boxBytes, l.waiting = received{}, 0, false
	if l.sub != nil {
		l.sub.Close()
		l.sub = nil
	}
	l.retry()
}

// close ends the goroutine, and waits until it has ended. If the client is making a connection,
// that takes until the client notices.
func (l *listener) close() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.listen("", "")
	<-l.ended
}

// retry ends the pause of run.
func (l *listener) retry() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// take returns what has been received since the call before.
func (l *listener) take() received {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.box
	l.box, l.boxBytes, l.waiting = received{}, 0, false
	return h
}

// run subscribes again and again until the listener is stopped.
func (l *listener) run() {
	defer close(l.ended)
	pause, via := 2*minListenPause, 0
	for {
		sub, round, stopped := l.subscribe(via)
		if stopped {
			return
		}
		if sub == nil {
			<-l.nudge
			continue
		}
		if l.hear(sub, round) {
			pause = 2 * minListenPause
		} else { // on a Cluster another master may be there
			via = (via + 1) % l.store.Keyspace().Shards()
		}
		// Also after it was confirmed: a server may close the connection each time.
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-l.nudge:
		}
		pause = min(2*pause, maxListenPause)
	}
}

// subscribe returns a subscription of this round at the master of a shard, nil if there is no channel or
// another round begins.
func (l *listener) subscribe(via int) (sub *redisstore.Subscription, round int, stopped bool) {
	l.mu.Lock()
	select {
	case <-l.nudge: // its round is the one read below
	default:
	}
	channel, echo, round, stopped := l.channel, l.echo, l.round, l.stopped
	l.mu.Unlock()
	if channel == "" || stopped {
		return nil, round, stopped
	}
	sub = l.store.SubscribeVia(via, channel, echo) // not under the lock: it may use the network
	l.mu.Lock()
	defer l.mu.Unlock()
	if round != l.round {
		sub.Close()
		return nil, l.round, l.stopped
	}
	l.sub = sub
	return sub, round, false
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

// put keeps what a subscription of a round has received, and reports whether it may receive more.
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
	case channel == l.echo:
		n, _ := strconv.ParseUint(payload, 10, 64) // 0 is no echo
		l.box.echo = max(l.box.echo, n)
	case channel != l.channel:
	case len(l.box.messages) == mailboxMessages || l.boxBytes+len(payload) > mailboxBytes:
		l.box.dropped++
	default:
		l.box.messages = append(l.box.messages, payload)
		l.boxBytes += len(payload)
	}
	l.mu.Unlock()
	if first {
		l.wake()
	}
	return err == nil
}
