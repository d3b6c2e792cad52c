package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

// item is something that can be asked for, by name of all nodes together so
// many times a second.
type item struct {
	key  string
	rule *limit.Rule
	rate float64
}

const (
	overload  = 2.5 // times its limit that a hot key is asked for
	junkRate  = 150 // one-off keys per second and node, so that the tables evict
	quotaRate = 8   // checks of each quota per second
	maxKeys   = 1024
)

// year is a window of which nothing ends during a run.
const year = 365 * 24 * time.Hour

// quotaUnits are used up in the first minute or two; what Redis forgets later
// would be admitted again.
const quotaUnits = 500

// hotRules are shared by the nodes at several times their limits.
var hotRules = []*limit.Rule{
	limit.Must(limit.TokenBucket("funnel", 40, time.Second, 80)),
	limit.Must(limit.TokenBucket("deep-funnel", 30, time.Second, 300)),
	limit.Must(limit.SlidingWindow("sliding", 200, 4*time.Second)),
	limit.Must(limit.SlidingWindow("long-sliding", 400, 10*time.Second)),
	limit.Must(limit.SlidingWindowBuckets("two-buckets", 250, 5*time.Second, 1)),
	limit.Must(limit.FixedWindow("fixed", 150, 3*time.Second)),
	limit.Must(limit.FixedWindow("long-fixed", 300, 7*time.Second)),
}

// hotKeys is how many keys of each hot rule there are.
const hotKeys = 2

var quotaRules = []*limit.Rule{
	limit.Must(limit.SlidingWindow("quota", quotaUnits, year)),
	limit.Must(limit.FixedWindow("quota", quotaUnits, 100*year)),
	limit.Must(limit.TokenBucket("quota", 1, 24*time.Hour, quotaUnits)),
	limit.Must(limit.Quota("quota", quotaUnits, lastingMonth(time.Now()))),
}

// lastingMonth is a calendar whose period ends a fortnight after now, or later.
func lastingMonth(now time.Time) limit.Calendar {
	return limit.Calendar{Unit: limit.Month, First: now.UTC().AddDate(0, 0, 15).Day()}
}

// tollRule is never used up: what Redis counts of it, and what it forgets, can
// be compared at the end with what was admitted.
var tollRule = limit.Must(limit.SlidingWindowBuckets("toll", 1<<40, year, 1))

// junkRules are those of the one-off keys.
var junkRules = []*limit.Rule{
	limit.Must(limit.TokenBucket("junk", 5, time.Second, 5)),
	limit.Must(limit.SlidingWindow("junk", 5, 3*time.Second)),
	limit.Must(limit.FixedWindow("junk", 5, 2*time.Second)),
}

// traffic is what each node is asked.
type traffic struct {
	items []item  // all whose every admission is recorded
	mix   rig.Mix // of the items, in checks per second and node
}

func newTraffic(nodes int) *traffic {
	tr := &traffic{}
	for _, r := range hotRules {
		capacity := float64(r.Limit()) / r.Period().Seconds()
		if arith.Of(r).Units > 0 {
			capacity = float64(arith.Of(r).Units) / r.Period().Seconds()
		}
		for k := range hotKeys {
			tr.items = append(tr.items, item{fmt.Sprintf("hot:%d", k), r, overload * capacity})
		}
	}
	for _, r := range quotaRules {
		tr.items = append(tr.items, item{"quota", r, quotaRate})
	}
	tr.items = append(tr.items, item{"toll", tollRule, quotaRate})
	for _, it := range tr.items {
		tr.mix.Add(it.rate / float64(nodes))
	}
	return tr
}

func (tr *traffic) rules() (out []*limit.Rule) {
	for _, it := range tr.items {
		out = append(out, it.rule)
	}
	return out
}

// rate returns the checks per second and node, junk included.
func (tr *traffic) rate() float64 { return tr.mix.Rate() + junkRate }

// pick returns the item at x of the total, 0 to 1; as many as there are items
// is junk.
func (tr *traffic) pick(x float64) int { return tr.mix.Pick(x * tr.rate()) }

// victim draws an item for a key that is to be lost. Half of them are quotas:
// what is lost of those, and not restored, is not forgotten in time.
func (tr *traffic) victim(d dice) int {
	lasting := len(quotaRules) + 1
	if d.IntN(2) == 0 {
		return len(tr.items) - 1 - d.IntN(lasting)
	}
	return d.IntN(len(tr.items) - lasting)
}

// maxUnits is how many units are asked for at once at the most.
const maxUnits = 4

// units draws how many units are asked for at once.
func units(rng *rand.Rand) int64 {
	if rng.IntN(10) > 0 {
		return 1
	}
	return 2 + rng.Int64N(maxUnits-1)
}

// weather is how much a node is asked at a time: steadily, in bursts, not at
// all.
type weather struct {
	until  time.Duration
	factor float64
}

// next draws the weather after w. In calm it is steady.
func (w weather) next(rng *rand.Rand, t time.Duration, calm bool) weather {
	length := func(lo, hi time.Duration) time.Duration { return t + lo + time.Duration(rng.Int64N(int64(hi-lo))) }
	switch {
	case calm:
		return weather{length(time.Second, 2*time.Second), 1}
	case w.factor != 1:
		return weather{length(2*time.Second, 10*time.Second), 1}
	case rng.IntN(2) == 0:
		return weather{length(100*time.Millisecond, 500*time.Millisecond), 6}
	}
	return weather{length(300*time.Millisecond, 4*time.Second), 0}
}
