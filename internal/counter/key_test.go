package counter

import (
	"bytes"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter has a key of its own, of any length: what the caller does with the bytes that
// it passed does not matter, nor does it whether anybody still has the counter.
func TestCountersKeepTheirKeys(t *testing.T) {
	many := limit.Must(limit.SlidingWindowBuckets("many", 1, time.Hour, 60))
	rules := []*limit.Rule{
		fast, many,
		limit.Must(limit.SlidingWindow("window", 1, time.Hour)),
		limit.Must(limit.SlidingLog("log", 1, time.Hour)),
	}
	for _, r := range rules {
		for _, n := range []int{0, 1, inlineKey - 1, inlineKey, inlineKey + 1, 41, behindKey - 1, behindKey, behindKey + 1, 255, 256, 100_000} {
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i*31 + n)
			}
			mine := bytes.Clone(want)
			c := NewAlone(unsafe.String(unsafe.SliceData(mine), n), r, nil, 0)
			clear(mine)
			key := c.Key()
			if !c.Matches(string(want), r) || n > 0 && c.Matches(string(want[1:]), r) || c.Matches(string(want)+"x", r) {
				t.Errorf("%v: does not know its key of %d bytes", r, n)
			}
			c = nil
			runtime.GC()
			if key != string(want) {
				t.Errorf("%v: a key of %d bytes has changed", r, n)
			}
		}
	}
}
