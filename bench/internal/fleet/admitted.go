package fleet

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/oracle"
)

// Admitted is what a limiter has admitted: when, by key. Each unit is an entry, in the order
// of time.
type Admitted [][]time.Duration

// Units returns how many units there are.
func (a Admitted) Units() (sum int) {
	for _, times := range a {
		sum += len(times)
	}
	return sum
}

// FullestWindows returns the mean over all keys that were admitted at all, and the most of any
// key, in units.
func (a Admitted) FullestWindows(length time.Duration) (mean float64, most int) {
	sum, keys := 0, 0
	for _, times := range a {
		if n := oracle.Fullest(times, length); n > 0 {
			sum, keys, most = sum+n, keys+1, max(most, n)
		}
	}
	return float64(sum) / float64(max(keys, 1)), most
}

// Missing returns how many units of each key another limiter has admitted more, added up.
func (a Admitted) Missing(than Admitted) (sum int) {
	for key, times := range a {
		sum += max(0, len(than[key])-len(times))
	}
	return sum
}
