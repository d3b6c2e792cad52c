//go:build !race

package sim

import (
	"sync"
	"testing"
)

// underRace reports that the race detector is on.
const underRace = false

// played has the names of the tests of oneGoroutine that have passed.
var played sync.Map

// oneGoroutine is for tests in which one goroutine computes alone, in virtual time. They do the
// same each time, on any number of processors: with -cpu and -count each plays until it has passed
// once.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if _, ok := played.Load(t.Name()); ok {
		t.Skip("one goroutine alone: has passed in this process")
	}
	t.Cleanup(func() {
		if !t.Failed() {
			played.Store(t.Name(), true)
		}
	})
}
