package resp

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Options says what a [Server] serves. Limiter and Rules are required.
type Options struct {
	Limiter byname.Limiter
	// Rules returns the rules in force, for HL.TAKE and HL.PEEK.
	Rules func() *rules.Set
	// Look is told of keys that are looked at without being counted. Default: nobody is.
	Look func(key string, rule *limit.Rule)
	// Password is what clients must send with AUTH or HELLO. Default: none is asked for.
	Password string
	// TLS is the certificate of the server and what it asks of clients. Default: no TLS.
	TLS *tls.Config
	// MaxConns is how many connections there may be. Default 10,000.
	MaxConns int
	// IdleTimeout ends a connection over which a client sends nothing, or takes no answer, for
	// that long. Clients with a pool connect anew. Default 0: never.
	IdleTimeout time.Duration
	// Logger gets a line for each client that is sent away. Default: none.
	Logger *slog.Logger
}

// Server answers the commands of Redis clients. Make it with [New]. It is safe for concurrent
// use.
type Server struct {
	o        Options
	decider  byname.Decider
	password [sha256.Size]byte // of Options.Password
	rates    rates
	stop     chan struct{} // closed when the server stops
	drained  chan struct{} // closed when it has stopped and no connections are left
	serving  sync.WaitGroup
	count    counters

	mu       sync.Mutex // protects what follows
	ln       net.Listener
	conns    map[*conn]struct{}
	stopping bool
	ended    bool
}

type counters struct {
	commands, errors, refused, protocol, turnedAway, idle, panics atomic.Uint64
}

// Stats is what a server has done since it was made.
type Stats struct {
	Conns      int    // connections that there are now
	Commands   uint64 // commands that were answered
	Refused    uint64 // of these, checks that were refused by a limit
	Errors     uint64 // of these, commands that were answered with an error
	Protocol   uint64 // connections that were ended because of what they sent
	TurnedAway uint64 // connections beyond Options.MaxConns
	Idle       uint64 // connections that were ended by Options.IdleTimeout
	Panics     uint64 // commands that failed in a way they never should; also in Errors
}

const defaultMaxConns = 10_000

// New returns a server. It serves when [Server.Serve] is called.
func New(o Options) (*Server, error) {
	if o.MaxConns == 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Look == nil {
		o.Look = func(string, *limit.Rule) {}
	}
	var errs []error
	if o.Limiter == nil || o.Rules == nil {
		errs = append(errs, errors.New("resp: Options.Limiter and Options.Rules are required"))
	}
	if o.MaxConns < 1 {
		errs = append(errs, fmt.Errorf("resp: Options.MaxConns is %d, must be at least 1", o.MaxConns))
	}
	if o.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("resp: Options.IdleTimeout is %v, must be at least 0", o.IdleTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Server{
		o: o, decider: byname.Decider{Limiter: o.Limiter, Rules: o.Rules, Look: o.Look},
		password: sha256.Sum256([]byte(o.Password)), rates: rates{known: map[rate]*limit.Rule{}},
		stop: make(chan struct{}), drained: make(chan struct{}), conns: map[*conn]struct{}{},
	}, nil
}

// Serve answers clients until [Server.Stop], and returns nil then. It closes ln.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return ln.Close()
	}
	s.ln = ln
	s.mu.Unlock()
	err := s.accept(ln)
	if s.isStopping() {
		err = nil
	} else {
		_ = ln.Close()
		s.cutOff()
	}
	s.serving.Wait()
	return err
}

// Stop accepts no more connections, and ends those that there are after the commands that
// they have sent. It returns when all have ended, or with an error when ctx has: then the
// others are cut off.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopping {
		s.stopping = true
		close(s.stop)
	}
	if s.ln != nil {
		_ = s.ln.Close() // a second time is no harm
	}
	for c := range s.conns {
		c.stop()
	}
	s.drainedLocked()
	s.mu.Unlock()
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
	}
	return fmt.Errorf("resp: %d connections were cut off: %w", s.cutOff(), ctx.Err())
}

// cutOff closes all connections, and returns how many.
func (s *Server) cutOff() int {
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range left {
		_ = c.Close()
	}
	return len(left)
}

// Stats returns what the server has done.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	return Stats{
		Conns: conns, Commands: s.count.commands.Load(), Refused: s.count.refused.Load(), Errors: s.count.errors.Load(),
		Protocol: s.count.protocol.Load(), TurnedAway: s.count.turnedAway.Load(), Idle: s.count.idle.Load(), Panics: s.count.panics.Load(),
	}
}
