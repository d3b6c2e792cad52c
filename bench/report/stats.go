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

// spread returns half the distance between the quartiles, as a part of the
// median: half of the runs are about that close to it.
func spread(list []float64) float64 {
	m := median(list)
	if m == 0 || len(list) < 2 {
		return 0
	}
	s := slices.Sorted(slices.Values(list))
	return (quantile(s, 0.75) - quantile(s, 0.25)) / 2 / math.Abs(m)
}

// quantile interpolates between the two neighbours in a sorted list.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// ratio returns a / b, if there is such a number.
func ratio(a, b float64) (float64, bool) {
	if b == 0 || math.IsNaN(a) || math.IsNaN(b) {
		return 0, false
	}
	return a / b, true
}
