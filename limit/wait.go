package limit

import (
	"context"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
)

// WaitError reports that Wait did not wait, because that would have taken longer
// than the caller's context lasts, or for ever. Nothing was consumed. It wraps
// [context.DeadlineExceeded], or [ErrTooMany] if waiting does not help.
type WaitError struct {
	Key  string // in full
	Rule *Rule
	// Need is how long it would have taken, as far as is known; [Never] if waiting does not help.
	Need time.Duration
}

// Error says what was asked for and how long it would have taken. The key in it is quoted, escaped and
// truncated to 64 bytes.
func (e *WaitError) Error() string {
	what := fmt.Sprintf("limit: wait for %v, key %s", e.Rule, escape.Quote(e.Key))
	if e.Need == Never {
		return what + ": more than there will ever be"
	}
	return fmt.Sprintf("%s: it would take %v, which is more than the context has left", what, e.Need)
}

// Unwrap returns what kind of error it is.
func (e *WaitError) Unwrap() error {
	if e.Need == Never {
		return ErrTooMany
	}
	return context.DeadlineExceeded
}
