package decision

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Given returns the context of a caller: one that never ends if it is nil.
func Given(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// TimeLeft returns how long ctx lasts; [limit.Never] if it has no deadline.
func TimeLeft(ctx context.Context) time.Duration {
	at, bounded := ctx.Deadline()
	if !bounded {
		return limit.Never
	}
	return max(clocks.Until(at), 0)
}

// Pause sleeps for d, or until ctx ends, and returns its error if it has.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
