package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// fault is a way in which Redis is away.
type fault int

const (
	none    fault = iota
	refused       // the wire closes every connection; Redis keeps its data
	silent        // the wire swallows everything; Redis keeps its data
	killed        // kill -9; it comes back empty
	frozen        // SIGSTOP: the kernel accepts connections, nobody answers
)

var faultNames = [...]string{"Redis is back", "connections are refused", "nothing is answered",
	"redis-server is killed, and will come back empty", "redis-server is frozen (SIGSTOP)"}

func (f fault) String() string { return faultNames[f] }

// world is the Redis of a run and the means to take it away.
type world struct {
	name  string
	addr  string // what the nodes connect to
	proxy *redistest.Proxy
	child *redistest.Server
	mini  *miniredis.Miniredis
	fault fault
}

// newWorld sets up what the flags ask for: a child process; or the user's own
// server, or an embedded one, behind a wire that can be made to fail.
func newWorld(c config) (*world, error) {
	w := &world{}
	var err error
	if c.server {
		if w.child, err = redistest.Launch(redistest.Options{}); err != nil {
			return nil, err
		}
		w.name, w.addr = "a redis-server child", w.child.Addr()
		return w, nil
	}
	target := c.redis
	w.name = "the Redis at " + target
	if target == "" {
		if w.mini, err = miniredis.Run(); err != nil {
			return nil, err
		}
		w.name, target = "an embedded Redis", w.mini.Addr()
	}
	if w.proxy, err = redistest.NewProxy(target); err != nil {
		w.close()
		return nil, err
	}
	w.addr = w.proxy.Addr()
	return w, nil
}

// faults returns what befalls Redis in the course of an outage, each from a
// share of its length on.
func (w *world) faults() []turn {
	if w.child != nil {
		return []turn{{0, killed}, {0.55, none}, {0.75, frozen}}
	}
	return []turn{{0, refused}, {0.6, silent}}
}

type turn struct {
	at    float64
	fault fault
}

// become brings the next fault upon Redis, and then lifts the last one: from
// one fault to the next there is no gap.
func (w *world) become(next fault) (err error) {
	switch next {
	case refused:
		w.proxy.Refuse(true)
	case silent:
		w.proxy.BlackHole(true)
	case killed:
		w.child.Kill()
	case frozen:
		err = w.child.Freeze()
	}
	if err != nil {
		return err
	}
	switch w.fault {
	case refused:
		w.proxy.Refuse(false)
	case silent:
		w.proxy.BlackHole(false)
	case killed:
		err = w.child.Restart()
	case frozen:
		err = w.child.Thaw()
	}
	w.fault = next
	return err
}

func (w *world) close() {
	if w.proxy != nil {
		w.proxy.Close()
	}
	if w.child != nil {
		w.child.Close()
	}
	if w.mini != nil {
		w.mini.Close()
	}
}

// wire counts commands, and remembers the exchanges that were slow or failed:
// what a node cannot know for that long.
type wire struct {
	commands atomic.Int64

	mu   sync.Mutex
	slow []exchange // and failed ones
}

type exchange struct {
	span
	failed bool
}

// slowFrom is the length from which an exchange is remembered by itself.
const slowFrom = 5 * time.Millisecond

func (w *wire) note(e rig.Exchange) {
	w.commands.Add(int64(e.Commands))
	x := exchange{span: span{e.From, e.To}, failed: e.Failed()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.failed || x.length() >= slowFrom {
		w.slow = append(w.slow, x)
	}
}

// exchanges returns those that failed, and those that were slow, while Redis
// was there.
func (w *wire) exchanges(down []span) (failed, slow []span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.slow {
		switch {
		case x.touches(down):
		case x.failed:
			failed = append(failed, x.span)
		default:
			slow = append(slow, x.span)
		}
	}
	return failed, slow
}
