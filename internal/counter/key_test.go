package counter

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A counter has a key of its own, of any length: what the caller does with the bytes that
// it passed does not matter, nor does it whether the counter is still in use.
func TestCountersKeepTheirKeys(t *testing.T) {
	many := limit.Must(limit.SlidingWindowBuckets("many", 1, time.Hour, 60))
	rules := []*limit.Rule{
		fast, many,
		limit.Must(limit.SlidingWindow("window", 1, time.Hour)),
		limit.Must(limit.SlidingLog("log", 1, time.Hour)),
	}
	for _, r := range rules {
		for _, n := range []int{0, 1, 41, MaxKey - 1, MaxKey, MaxKey + 1, 100_000} {
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
			if n > 0 {
				other := bytes.Clone(want)
				other[n/2] ^= 1
				if c.Matches(string(other), r) {
					t.Errorf("%v: takes another key of %d bytes for its own", r, n)
				}
			}
			c = nil
			runtime.GC()
			if kept, _ := KeyOf(string(want)); key != kept || n <= MaxKey && key != string(want) {
				t.Errorf("%v: a key of %d bytes has changed", r, n)
			}
		}
	}
}

// A key that looks like the sum of a long one is another key, and so is a long key with
// another end.
//
// Fault 52: never shared.
func TestLongKeysAreNotTheirSums(t *testing.T) {
	long := strings.Repeat("k", MaxKey) + "1"
	c := NewAlone(long, fast, nil, 0)
	sum, hashed := KeyOf(long)
	if !hashed || !c.hashed || c.Key() != sum || len(sum) != 64 {
		t.Errorf("kept as %q", c.Key())
	}
	if c.Matches(sum, fast) || c.Matches(long[:MaxKey]+"2", fast) || !c.Matches(long, fast) {
		t.Error("takes another key for its own, or not its own")
	}
	if s := NewAlone(sum, fast, nil, 0); s.hashed || s.Matches(long, fast) || !s.Matches(sum, fast) {
		t.Error("a sum is taken for its key")
	}
}
