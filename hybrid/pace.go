package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// pace returns the time of the timer clock, which is the system's. A test may stop the
// clock that checks are decided on; heartbeats must go on.
func pace() time.Duration { return clock.System{}.Now() }
