//go:build !race

package hybrid

import "testing"

// underRace reports that the race detector is on.
const underRace = false

// oneGoroutine is for tests that the race detector would make long.
func oneGoroutine(*testing.T) {}
