package main

import (
	"math"
	"slices"
)

// median returns the middle of a list that is not empty, which a single run
// that was disturbed does not move.
func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// ratio returns a / b, if there is such a number.
func ratio(a, b float64) (float64, bool) {
	if b == 0 || math.IsNaN(a) || math.IsNaN(b) {
		return 0, false
	}
	return a / b, true
}
