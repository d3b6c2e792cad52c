package hybrid

import "sync/atomic"

// misuse remembers which causes of invalid checks were reported: each cause is one event.
type misuse struct{ reported [causes]atomic.Bool }

// The causes.
const (
	causeRule  = iota // nil, or not made by a constructor
	causeN            // negative
	causeKind         // a rule of an algorithm that this limiter cannot decide
	causeNames        // different rules of one name, asked together for one key
	causes
)
