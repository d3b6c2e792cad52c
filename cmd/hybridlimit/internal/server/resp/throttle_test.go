package resp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// The course of events by which redis-cell is tested: a burst of 5, one per second. Its
// command rounds the seconds up.
func TestThrottleFollowsTheCourseOfRedisCell(t *testing.T) {
	lim, now := alone(t)
	_, addr := listen(t, Options{Limiter: lim})
	c := connect(t, addr)
	at := time.Duration(0)
	for i, step := range []struct {
		at                                         time.Duration
		volume, remaining, reset, retry, isLimited int64
	}{
		{0, 6, 5, 0, -1, 1}, // never: more than the limit
		{0, 1, 4, 1, -1, 0},
		{0, 1, 3, 2, -1, 0},
		{0, 1, 2, 3, -1, 0},
		{0, 1, 1, 4, -1, 0},
		{0, 1, 0, 5, -1, 0},
		{0, 1, 0, 5, 1, 1},
		{3000 * time.Millisecond, 1, 2, 3, -1, 0},
		{3100 * time.Millisecond, 1, 1, 4, -1, 0}, // 3.9 s
		{4000 * time.Millisecond, 1, 1, 4, -1, 0},
		{8000 * time.Millisecond, 1, 4, 1, -1, 0},
		{9500 * time.Millisecond, 1, 4, 1, -1, 0},
		{9500 * time.Millisecond, 0, 4, 1, -1, 0}, // only looks
		{9500 * time.Millisecond, 2, 2, 3, -1, 0},
		{9500 * time.Millisecond, 5, 2, 3, 3, 1},
	} {
		now.Advance(step.at - at)
		at = step.at
		got := fmt.Sprint(c.do(fmt.Sprintf("CL.THROTTLE foo 4 1 1 %d", step.volume)))
		if want := fmt.Sprint(ints(step.isLimited, 5, step.remaining, step.retry, step.reset)); got != want {
			t.Errorf("step %d: %s, want %s", i, got, want)
		}
	}
}

func TestThrottleCountsARateOnce(t *testing.T) {
	lim, now := alone(t)
	_, addr := listen(t, Options{Limiter: lim})
	c := connect(t, addr)
	c.want("CL.THROTTLE k 9 30 60 5", ints(0, 10, 5, -1, 10))
	c.want("CL.THROTTLE k 9 1 2 0", ints(0, 10, 5, -1, 10))     // the same rate in other words
	c.want("CL.THROTTLE k 14 30 60 0", ints(0, 15, 10, -1, 10)) // another burst goes on with what was used
	c.want("CL.THROTTLE k 2 30 60", ints(1, 3, 0, 6, 10))       // 5 are used, of 3
	c.want("CL.THROTTLE k 9 30 61 0", ints(0, 10, 10, -1, 0))   // another rate counts by itself
	now.Advance(10 * time.Second)
	c.want("CL.THROTTLE k 9 30 60 10", ints(0, 10, 0, -1, 20))
	if n := inside.Of(lim).Figures().Conflicts; n != 0 {
		t.Errorf("%d conflicts of rules", n)
	}
}

// Seconds are rounded up, not cut: who waits as long as the answer says is admitted then.
func TestThrottleSaysLongEnoughToWait(t *testing.T) {
	lim, now := alone(t)
	_, addr := listen(t, Options{Limiter: lim})
	c := connect(t, addr)
	for _, wait := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond, 2999 * time.Millisecond} {
		c.want("CL.THROTTLE k 0 1 3", ints(0, 1, 0, -1, 3))
		now.Advance(3*time.Second - wait)
		seconds := int64((wait + time.Second - 1) / time.Second)
		reply := c.do("CL.THROTTLE k 0 1 3").([]any)
		if reply[0] != int64(1) || reply[3] != seconds {
			t.Errorf("%v before it is admitted: %v, want %d s", wait, reply, seconds)
		}
		now.Advance(time.Duration(seconds) * time.Second)
	}
}

func TestThrottleRefusesWhatItCannotRead(t *testing.T) {
	s, addr := listen(t, Options{})
	c := connect(t, addr)
	for _, bad := range []struct{ command, word string }{
		{"CL.THROTTLE", "number of arguments"},
		{"CL.THROTTLE k 1 1 1 1 1", "number of arguments"},
		{"CL.THROTTLE k x 1 1", "max_burst is 'x'"},
		{"CL.THROTTLE k -1 1 1", "max_burst is '-1'"},
		{"CL.THROTTLE k 9007199254740992 1 1", "max_burst"},
		{"CL.THROTTLE k 1 0 1", "count is '0'"},
		{"CL.THROTTLE k 1 1 0", "period is '0'"},
		{"CL.THROTTLE k 1 1 9223372036854775807", "period"},
		{"CL.THROTTLE k 1 1 1 -1", "quantity is '-1'"},
		{"CL.THROTTLE k 9007199254740991 1 3153600000", "to fill"}, // would take longer than 100 years
		{"CL.THROTTLE k " + strings.Repeat("9", 10_000) + " 1 1", "max_burst"},
	} {
		c.wantError(c.do(bad.command), "ERR ", bad.word)
	}
	c.wantError(c.send("CL.THROTTLE", "k", "1\r\n+OK", "1", "1"), "max_burst") // one error, not an error and an answer
	c.want("CL.THROTTLE k 1 1 1", ints(0, 2, 1, -1, 1))                        // and the connection is fine
	if st := s.Stats(); st.Errors != 12 || st.Commands != 13 || st.Panics != 0 {
		t.Errorf("%+v", st)
	}
}

func TestThrottleKeepsABoundedNumberOfRates(t *testing.T) {
	s, addr := listen(t, Options{})
	c := connect(t, addr)
	const more = 100
	var b strings.Builder
	for i := range maxRates + more {
		b.WriteString(encode("CL.THROTTLE", "k", fmt.Sprint(i), "1", "1", "1"))
	}
	go func() { _, _ = c.Write([]byte(b.String())) }()
	for range maxRates + more {
		c.reply()
	}
	if n := len(s.rates.known); n != maxRates {
		t.Errorf("%d rates are kept, want %d", n, maxRates)
	}
	// Those beyond count as the others do.
	for i, reset := range []int64{47, 94, 141} { // 46.8, 93.5 and 140.3
		c.want("CL.THROTTLE other 9 77 3600", ints(0, 10, int64(9-i), -1, reset))
	}
}

func TestLongKeys(t *testing.T) {
	_, addr := listen(t, Options{})
	c := connect(t, addr)
	long := strings.Repeat("k", 10_000)
	for i, key := range []string{long, long + "x", strings.Repeat("k", 256), "\x00\r\n\xff"} {
		for _, left := range []int64{1, 0} {
			if got := fmt.Sprint(c.send("CL.THROTTLE", key, "1", "1", "1000")); got != fmt.Sprint(ints(0, 2, left, -1, 1000*(2-left))) {
				t.Errorf("key %d: %s, want %d left", i, got, left)
			}
		}
	}
	// All who have lost theirs would share one limit.
	c.wantError(c.send("CL.THROTTLE", "", "1", "1", "1000"), "the key is empty")
}
