package limit

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/escape"
)

// Errors that callers may branch on. They arrive wrapped, with the offending
// value in the text; use [errors.Is].
var (
	// ErrInvalidN reports a negative number of units. Nothing was consumed and
	// nothing was refunded.
	ErrInvalidN = errors.New("limit: number of units is negative")
	// ErrNilRule reports a check without a rule.
	ErrNilRule = errors.New("limit: rule is nil")
	// ErrUnsupported reports a rule that this limiter cannot decide.
	ErrUnsupported = errors.New("limit: rule is not supported by this limiter")
	// ErrTooMany reports more units than the limit holds: waiting does not help.
	ErrTooMany = errors.New("limit: more units than the limit holds")
	// ErrClosed reports a call on a limiter that has been closed.
	ErrClosed = errors.New("limit: limiter is closed")
)

// KeyError reports that one key in Redis cannot be used, because it is of another
// type or holds a value that this module never writes. The key is left as it is;
// delete it to start over. Other keys are not affected.
type KeyError struct {
	Key    string // name in Redis, in full
	Reason string // "WRONGTYPE", or what is wrong with the value
}

// mostReason is the largest number of bytes of a reason in the text of an error.
const mostReason = 256

// Error describes the key and the reason. Both are untrusted texts: they are escaped and
// truncated. The name in Redis is quoted and has at most 64 bytes.
func (e *KeyError) Error() string {
	return fmt.Sprintf("limit: key %s in Redis: %s", escape.Quote(e.Key), escape.Plain(e.Reason, mostReason))
}
