package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

const day = 24 * time.Hour

// Wait returns a time span in two units at the most, rounded up, such as 3m12s: whoever
// waits that long has waited long enough.
func Wait(d time.Duration) string {
	switch {
	case d == limit.Never:
		return "never"
	case d <= 0:
		return "0s"
	case d <= time.Second:
		return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10) + "ms"
	case d <= 10*time.Second:
		tenths := (d + 100*time.Millisecond - 1) / (100 * time.Millisecond)
		return fmt.Sprintf("%d.%ds", tenths/10, tenths%10)
	case d <= time.Hour:
		return Exact(up(d, time.Second))
	case d <= 2*day:
		return Exact(up(d, time.Minute))
	}
	if hours := up(d, time.Hour); hours < 100*day && hours%day > 0 {
		return fmt.Sprintf("%dd%dh", hours/day, hours%day/time.Hour)
	}
	return fmt.Sprintf("%dd", up(d, day)/day)
}

func up(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }

// Exact returns a time span without the parts that are 0: 1m for 1m0s.
func Exact(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Seconds returns a time span for JSON: nil for [limit.Never].
func Seconds(d time.Duration) *float64 {
	if d == limit.Never {
		return nil
	}
	s := d.Seconds()
	return &s
}

// Count returns a number with a comma between its thousands.
func Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	from := 0
	if n < 0 {
		from = 1
	}
	for i := len(text) - 3; i > from; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Bytes returns a size, such as 1.5 MB.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, names := float64(n)/unit, []string{"kB", "MB", "GB", "TB", "PB", "EB"}
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	return fmt.Sprintf("%.1f %s", value, names[0])
}

// Many returns a number and what it counts: one, or the word for several.
func Many(n int64, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + several
}
