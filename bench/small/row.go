package main

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// row is a load that every limiter is put under.
type row struct {
	pattern pattern
	window  bool // by a sliding window, not by a token bucket
	limit   int64
	nodes   int
	per     time.Duration // the limit is for this time
}

// pattern says which node is asked, and when.
type pattern string

const (
	random    pattern = "random"      // each check at any node
	sticky    pattern = "sticky"      // all checks of a key at one node
	burst100  pattern = "burst-100ms" // ten checks of a new key at any nodes, within this time
	burst5    pattern = "burst-5ms"
	burstSize         = 10
	burstsPer         = 10 // bursts a second
)

// span is how long a burst takes; 0: the pattern has none.
func (p pattern) span() time.Duration {
	switch p {
	case burst100:
		return 100 * time.Millisecond
	case burst5:
		return 5 * time.Millisecond
	}
	return 0
}

// period is what the limits of all rows are for.
const period = 30 * time.Second

// load is how many keys there are, and how often each is asked for, by limit: about twelve
// times as often as the limit allows, of the highest five times. All take a similar number of
// checks.
var load = map[int64]struct {
	keys int
	rate float64 // checks per key and second
}{5: {200, 2}, 10: {100, 4}, 20: {40, 7.5}, 60: {20, 10}}

// rows returns the loads, in the order of the tables.
func rows() (list []row) {
	for _, p := range []pattern{random, sticky} {
		for _, window := range []bool{true, false} {
			for _, n := range []int64{5, 10, 20, 60} {
				for _, nodes := range []int{1, 4, 10, 30} {
					if p == random || nodes > 1 {
						list = append(list, row{p, window, n, nodes, period})
					}
				}
			}
		}
	}
	for _, p := range []pattern{burst100, burst5} {
		list = append(list, row{p, true, 5, 10, period}, row{p, false, 5, 10, period})
	}
	return list
}

func (r row) String() string {
	name := "bucket"
	if r.window {
		name = "window"
	}
	return fmt.Sprintf("%s/%s/%d/%d", r.pattern, name, r.limit, r.nodes)
}

// rule is what the keys of a row are limited by.
func (r row) rule() *limit.Rule {
	if r.window {
		return limit.Must(limit.SlidingWindow("window", r.limit, r.per))
	}
	return limit.Must(limit.TokenBucket("bucket", r.limit, r.limit, r.per))
}
