package clock

import (
	"os"
	"runtime"
	"strings"
	"time"
)

// cycles reads the processor's time stamp counter. It is not fenced: the reading
// may be some dozens of instructions early, which is what makes it cheap.
//
//go:noescape
func cycles() uint64

// kernelSource is where Linux says what it keeps time by. It names the counter only
// if that runs evenly, never stops and is the same on all processors.
const kernelSource = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

func countsCycles() bool {
	if runtime.GOOS != "linux" {
		return false
	}
	source, err := os.ReadFile(kernelSource)
	return err == nil && strings.TrimSpace(string(source)) == "tsc"
}

// Now returns the time since the Unix epoch.
func (TSC) Now() time.Duration {
	l := timeline.Load()
	if d := cycles() - l.from; d < l.cycles {
		return l.after(d)
	}
	return renew(l)
}
