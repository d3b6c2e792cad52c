package main

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What Redis is asked for begins with the bucket that the window has not left.
func TestWindowsSince(t *testing.T) {
	sliding := limit.Must(limit.SlidingWindowBuckets("sliding", 5, 10*time.Second, 10))
	fixed := limit.Must(limit.FixedWindow("fixed", 5, 10*time.Second))
	for _, c := range []struct {
		rule      *limit.Rule
		now, want time.Duration
	}{
		{fixed, 20*time.Second - 1, 10 * time.Second},
		{fixed, 20 * time.Second, 20 * time.Second},
		{sliding, 20*time.Second - 1, 10 * time.Second},
		{sliding, 20 * time.Second, 11 * time.Second},
		{limit.Must(limit.Funnel("funnel", 5, 1, time.Second)), 20 * time.Second, 0},
	} {
		p := newSpec(c.rule)
		if since := p.since(time.Unix(0, int64(c.now))); since != int64(c.want) {
			t.Errorf("%v at %v: since %v, want %v", c.rule, c.now, time.Duration(since), c.want)
		}
	}
}
