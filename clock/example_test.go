package clock_test

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
)

// A test moves the time of its limiters.
func ExampleManual() {
	c := clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	before := c.Now()
	c.Advance(time.Minute)
	fmt.Println(c.Now() - before)
	fmt.Println(clock.System{}.Ahead() > -time.Hour) // of the system's clock: how far it was set forward
	// Output:
	// 1m0s
	// true
}

// A check reads the clock. One that is read once a millisecond is cheaper.
func ExampleNewCoarse() {
	c := clock.NewCoarse(time.Millisecond)
	defer c.Stop()
	fmt.Println((clock.System{}.Now() - c.Now()).Abs() < time.Hour)
	// Output: true
}
