package hybrid

import "time"

// Log lines of one kind: logBurst at once, then one every logEvery.
const (
	logBurst = 6
	logEvery = 10 * time.Second
)

// throttle lets logBurst lines through at once, and then one each logEvery.
type throttle struct {
	full    time.Duration // when a whole burst is admitted again, on the timer clock
	skipped int
}

// admit reports whether a line may be logged, and how many were skipped since the last one.
func (t *throttle) admit(now time.Duration) (skipped int, ok bool) {
	if t.wait(now) > 0 {
		t.skipped++
		return 0, false
	}
	skipped, t.skipped = t.skipped, 0
	t.full = max(t.full, now) + logEvery
	return skipped, true
}

// wait returns how long until a line may be logged.
func (t *throttle) wait(now time.Duration) time.Duration { return t.full - now - (logBurst-1)*logEvery }
