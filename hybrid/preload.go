package hybrid

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit/limit"
)

// preloadStep is how many keys Preload asks for at a time.
const preloadStep = 1000

// Preload fetches what Redis knows of keys ahead of traffic, a thousand at a
// time: without it the first checks of a key are decided before the first answer
// has come. It returns when all of them are known. Keys that are in use are asked
// for only if what is known of them is old. More keys than Options.MaxKeys
// displace each other.
//
// Errors: what [Limiter.CheckRule] says of the rule, [limit.ErrClosed], the error
// of ctx, or an [*UnavailableError] while Redis cannot be reached; some of the
// keys may be known then. Without Redis there is nothing to fetch, and it
// returns nil.
func (l *Limiter) Preload(ctx context.Context, rule *limit.Rule, keys ...string) error {
	if err := l.CheckRule(rule); err != nil {
		return err
	}
	switch {
	case l == nil || l.table == nil || l.closed.Load():
		return fmt.Errorf("hybrid: preload: %w", limit.ErrClosed)
	case l.driver == nil:
		return nil
	}
	ctx = orBackground(ctx)
	for len(keys) > 0 {
		n := min(len(keys), preloadStep)
		for _, key := range keys[:n] {
			l.table.Touch(key, rule, l.now())
		}
		if err := l.driver.flush(ctx, false); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}
