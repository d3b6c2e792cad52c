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
	N    int64
	// Need is how long it would have taken, as far as is known; [Never] if waiting
	// does not help. Left is how long the context would have lasted.
	Need, Left time.Duration
}

// Error says what was asked for and how long it would have taken. The key in it is quoted, escaped and
// truncated to 64 bytes.
func (e *WaitError) Error() string {
	what := fmt.Sprintf("limit: %d units of %v, key %s", e.N, e.Rule, escape.Quote(e.Key))
	if e.Need == Never {
		return what + ": more than there will ever be"
	}
	return fmt.Sprintf("%s: would take %v, and the deadline is in %v", what, e.Need, e.Left)
}

// Unwrap returns what kind of error it is.
func (e *WaitError) Unwrap() error {
	if e.Need == Never {
		return ErrTooMany
	}
	return context.DeadlineExceeded
}
