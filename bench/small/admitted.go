package main

import "time"

// admitted is what a limiter has admitted: when, by key. Each unit is an entry, in the order
// of time.
type admitted [][]time.Duration

// units returns how many units there are.
func (a admitted) units() (sum int) {
	for _, times := range a {
		sum += len(times)
	}
	return sum
}

// fullest returns the most units that were admitted within any time of that length, its end
// not included.
func fullest(times []time.Duration, length time.Duration) (most int) {
	first := 0
	for i, at := range times {
		for at-times[first] >= length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// fullestWindows returns the mean over all keys that were admitted at all, and the most of any
// key, in units.
func (a admitted) fullestWindows(length time.Duration) (mean float64, most int) {
	sum, keys := 0, 0
	for _, times := range a {
		if n := fullest(times, length); n > 0 {
			sum, keys, most = sum+n, keys+1, max(most, n)
		}
	}
	return float64(sum) / float64(max(keys, 1)), most
}

// missing returns how many units of each key another limiter has admitted more, added up.
func (a admitted) missing(than admitted) (sum int) {
	for key, times := range a {
		sum += max(0, len(than[key])-len(times))
	}
	return sum
}
