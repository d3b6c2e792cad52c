package main

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/remote/redistest"
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

// clientTimeout bounds each step of go-redis; the limiter's own timeout bounds
// the whole exchange.
const clientTimeout = 200 * time.Millisecond

// newClient returns a client with the settings that the README recommends.
func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// newPatientClient returns a client for the demo's own questions, which nobody
// waits for.
func newPatientClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// wire is a go-redis hook that counts commands, and remembers the exchanges
// that were slow or failed: what a node cannot know for that long.
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

func (w *wire) note(from time.Duration, commands int, err error) {
	w.commands.Add(int64(commands))
	x := exchange{span: span{from, now()}, failed: err != nil && !strings.HasPrefix(err.Error(), "NOSCRIPT")}
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

// DialHook dials.
func (w *wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook notes a command.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		from := now()
		err := next(ctx, cmd)
		w.note(from, 1, err)
		return err
	}
}

// ProcessPipelineHook notes the commands of a pipeline.
func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		from := now()
		err := next(ctx, cmds)
		w.note(from, len(cmds), err)
		return err
	}
}
