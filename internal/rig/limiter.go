package rig

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// The settings of the limiters on which bounds depend. All but Lag are the defaults.
const (
	Interval       = 100 * time.Millisecond // SyncInterval
	Lag            = 300 * time.Millisecond // MaxLag
	CommandTimeout = 250 * time.Millisecond
	Heartbeat      = time.Second
)

// Start returns a limiter with a client of its own at an address, whose exchanges are
// reported to hook. The settings above replace those in o.
func Start(addr string, hook Hook, o hybrid.Options) (*hybrid.Limiter, *redis.Client, error) {
	rdb := NewClient(addr)
	rdb.AddHook(hook)
	o.SyncInterval, o.MaxLag, o.CommandTimeout, o.HeartbeatInterval = Interval, Lag, CommandTimeout, Heartbeat
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)) // outages are what these programs make
	lim, err := hybrid.New(rdb, o)
	if err != nil {
		rdb.Close()
		return nil, nil, err
	}
	return lim, rdb, nil
}

// Flush flushes a limiter. While Redis is unreachable, because the machine is busy, it tries
// again every second until ctx ends: each attempt sends a probe regardless of the back-off.
func Flush(ctx context.Context, lim *hybrid.Limiter) error {
	for {
		err := lim.Flush(ctx)
		if _, away := errors.AsType[*hybrid.UnavailableError](err); !away || !Pause(ctx, time.Second) {
			return err
		}
	}
}

// Pause waits for a time. It returns false if ctx ends before.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
