//go:build !amd64

package clock

import "time"

func cycles() uint64 { return 0 }

func countsCycles() bool { return false }

// Now returns the time since the Unix epoch.
func (TSC) Now() time.Duration { return System{}.Now() }
