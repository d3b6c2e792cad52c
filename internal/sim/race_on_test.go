//go:build race

package sim

import "testing"

// underRace reports that the race detector is on.
const underRace = true

// oneGoroutine skips a test in which one goroutine computes alone, in virtual time: the
// race detector finds nothing there, and makes it ten times as long.
func oneGoroutine(t *testing.T) {
	t.Helper()
	t.Skip("one goroutine alone: runs without the race detector")
}
