// Package rig holds what the programs in bench and internal/verify share: their
// clock, clients with the settings that the README recommends, and a hook that
// sees every exchange with Redis.
package rig

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hybridlimit/hybridlimit/clock"
)

// Now reads the one clock of a program, the same that its limiters go by.
func Now() time.Duration { return clock.System{}.Now() }

// clientTimeout bounds each step of go-redis; the limiter's own timeout bounds
// the whole exchange.
const clientTimeout = 200 * time.Millisecond

// NewClient returns a client for a limiter.
func NewClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// NewPatientClient returns a client for a program's own questions, which
// nobody waits for.
func NewPatientClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Exchange is a command or a pipeline and its end.
type Exchange struct {
	From, To time.Duration
	Commands int
	Err      error
}

// Failed tells whether the exchange failed. A script that Redis has forgotten
// is not a failure: it is loaded again.
func (x Exchange) Failed() bool { return x.Err != nil && !strings.HasPrefix(x.Err.Error(), "NOSCRIPT") }

// Hook is a go-redis hook that reports every exchange of a client: when it begins, if
// Begun is set, and when it has ended.
type Hook struct {
	Begun func(from time.Duration)
	Ended func(Exchange)
}

// exchange reports what do does.
func (h Hook) exchange(commands int, do func() error) error {
	from := Now()
	if h.Begun != nil {
		h.Begun(from)
	}
	err := do()
	h.Ended(Exchange{from, Now(), commands, err})
	return err
}

// DialHook dials.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook reports a command.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.exchange(1, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook reports a pipeline.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.exchange(len(cmds), func() error { return next(ctx, cmds) })
	}
}
