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
	load
}

// load is how many keys there are, and how often they are asked for.
type load struct {
	keys int
	rate float64       // checks per key and second; bursts have a pace of their own
	per  time.Duration // what the limit is for
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

// loads are those of all rows, by limit: about twelve times what the limit allows, of the
// highest five times. All are 200 to 400 checks a second.
var loads = map[int64]load{5: {200, 2, period}, 10: {100, 4, period}, 20: {40, 7.5, period}, 60: {20, 10, period}}

// rows returns the loads, in the order of the tables.
func rows() (list []row) {
	for _, p := range []pattern{random, sticky} {
		for _, window := range []bool{true, false} {
			for _, n := range []int64{5, 10, 20, 60} {
				for _, nodes := range []int{1, 4, 10, 30} {
					if p == random || nodes > 1 {
						list = append(list, row{p, window, n, nodes, loads[n]})
					}
				}
			}
		}
	}
	for _, p := range []pattern{burst100, burst5} {
		list = append(list, row{p, true, 5, 10, loads[5]}, row{p, false, 5, 10, loads[5]})
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
	return limit.Must(limit.TokenBucket("bucket", r.limit, r.per, r.limit))
}
