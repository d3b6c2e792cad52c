package arith

import "fmt"

// Algorithm names the way in which a rule counts.
type Algorithm uint8

// The algorithms. The zero Algorithm is none of them.
const (
	// TokenBucket is stored as the time at which the bucket will be full: the generic cell rate
	// algorithm (GCRA) of ITU-T I.371. A leaky bucket is the same algorithm: its free room is the tokens.
	TokenBucket Algorithm = iota + 1
	// SlidingWindow counts in sub-buckets of a window. The oldest one expires gradually. With one
	// bucket it is the two-window approximation.
	SlidingWindow
	// FixedWindow counts in windows aligned to the clock.
	FixedWindow
	// CalendarQuota counts in the days, weeks or months of a time zone.
	CalendarQuota
	// SlidingLog stores each unit.
	SlidingLog
	// Combined is several limits that hold together.
	Combined
)

var algorithmNames = [...]string{"none", "token-bucket", "sliding-window", "fixed-window", "calendar", "sliding-log", "combined"}

// String returns the name of the algorithm in lower case, with dashes.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}
