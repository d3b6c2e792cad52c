package algorithm

import "github.com/hybridlimit/hybridlimit/internal/arith"

// Multipliers that are not plain factors.
const (
	// MultiplierOpen admits every check for no more than the limit.
	MultiplierOpen = 0
	// MultiplierClosed refuses every check for 1 unit or more.
	MultiplierClosed = -1
)

// MaxUnits bounds every count of units, so that the sum of two never overflows.
const MaxUnits = 1 << 60

// ClockStep is the largest difference, in ns, that two readings of one clock may show only because
// they were not taken at the same moment.
const ClockStep = 20_000_000

// Times returns a · b, at most MaxUnits.
func Times(a, b int64) int64 {
	if a > 0 && b > 1 && b > MaxUnits/a { // usually there is no need to divide
		return MaxUnits
	}
	return a * b
}

// Earlier returns the earlier of two times.
func Earlier(a, b arith.Span) arith.Span {
	if b.Less(a) {
		return b
	}
	return a
}
