package algorithm

import "github.com/hybridlimit/hybridlimit/internal/arith"

// Multipliers that are not plain factors.
const (
	// MultiplierOpen admits every check for no more than the limit.
	MultiplierOpen = 0
	// MultiplierClosed refuses every check for 1 unit or more.
	MultiplierClosed = -1
)

// MaxUnits bounds what is counted, so that sums of two never wrap.
const MaxUnits = 1 << 60

// ClockStep is by how much, in ns, two readings of one clock may differ only because they
// were not taken at the same moment.
const ClockStep = 20_000_000

// Times returns a · b, at most MaxUnits.
func Times(a, b int64) int64 {
	if a > 0 && b > 1 && b > MaxUnits/a { // a division that most often is not needed
		return MaxUnits
	}
	return a * b
}

// Earlier returns the lesser of two times.
func Earlier(a, b arith.Span) arith.Span {
	if b.Less(a) {
		return b
	}
	return a
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
