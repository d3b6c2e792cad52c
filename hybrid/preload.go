package hybrid

import (
	"context"
	"fmt"

	"github.com/hybridlimit/hybridlimit/limit"
)

// preloadStep is how many keys Preload fetches at a time.
const preloadStep = 1000

// Preload fetches what Redis knows about keys before they are checked, a thousand at a
// time. Without it the first checks of a key are decided before the first answer has come.
// It returns when all of them are known. A key in use is fetched only if its state is old.
// If there are more keys than Options.MaxKeys, they evict each other.
//
// Errors: that of [Limiter.CheckRule], [limit.ErrClosed], the error of ctx, or an
// [*UnavailableError] while Redis cannot be reached; some of the keys may be known then.
// Without Redis there is nothing to fetch, and it returns nil.
func (l *Limiter) Preload(ctx context.Context, keys []string, rule *limit.Rule) error {
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
