package decision

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
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
	return max(clock.Until(at), 0)
}
