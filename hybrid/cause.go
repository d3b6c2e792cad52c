package hybrid

import "sync/atomic"

// misuse remembers which causes of checks that cannot be asked have been told of: one
// event each, however many such checks there are.
type misuse struct{ reported [causes]atomic.Bool }

// The causes.
const (
	causeRule  = iota // nil, or not made by a constructor
	causeN            // negative
	causeKind         // a rule that this limiter cannot decide
	causeNames        // rules of one name asked together for one key
	causes
)
