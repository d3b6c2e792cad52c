package reconcile

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// Stats holds what a machine counts. Its fields may be read concurrently.
type Stats struct {
	Batches, KeysSynced, Resent, Beats, Failures, Losses atomic.Uint64
	RolledBack, Quarantined, BadReplies, StateChanges    atomic.Uint64
	HookPanics, Renames                                  atomic.Uint64
	Acked, Overshoot, Mismatches, Behind                 atomic.Int64
	Returned                                             atomic.Int64 // operations that have handed units back in Redis
	GivenUp, ExactAsked, ExactFailed                     atomic.Uint64
	Refunded, Charged, Forgiven, Cancelled, Unreturned   atomic.Int64
	Announced, Received, Withheld, Missed                atomic.Uint64
	FailuresBy                                           [64]atomic.Uint64 // by index in redisstore.Reasons
	Exchanges                                            Latencies
	LastSuccess                                          atomic.Int64 // on the counter clock, ns; 0: there was none
	overshoots                                           sync.Map     // int64, by the name of the rule
	rules                                                int          // entries of overshoots. Owned by the machine
}

// Failed counts an exchange that failed for a reason.
func (c *Stats) Failed(reason string) {
	i := slices.Index(redisstore.Reasons, reason)
	c.FailuresBy[max(i, 0)].Add(1) // the first is for all reasons that are not in the list
	c.Failures.Add(1)
}

// Answered counts an exchange that was answered in full after d ns, at now on the counter clock.
func (c *Stats) Answered(d, now int64) {
	c.Exchanges.add(d)
	c.LastSuccess.Store(now)
}

// LoadFailures returns how many exchanges have failed, by reason.
func (c *Stats) LoadFailures() map[string]uint64 {
	by := make(map[string]uint64, len(redisstore.Reasons))
	for i, reason := range redisstore.Reasons {
		by[reason] = c.FailuresBy[i].Load()
	}
	return by
}

// mostRules is of how many names of rules the overshoot is kept.
const mostRules = 1000

// noteOvershoot keeps the largest n, also of each rule. Only the machine calls it.
func (c *Stats) noteOvershoot(rule string, n int64) {
	if n <= 0 {
		return
	}
	c.Overshoot.Store(max(c.Overshoot.Load(), n))
	is, known := c.overshoots.Load(rule)
	if was, _ := is.(int64); n > was && (known || c.rules < mostRules) {
		c.overshoots.Store(rule, n)
		if !known {
			c.rules++
		}
	}
}

// OvershootOf returns the overshoot of the rules of a name.
func (c *Stats) OvershootOf(rule string) int64 {
	is, _ := c.overshoots.Load(rule)
	n, _ := is.(int64)
	return n
}

// Latencies is a histogram of how long exchanges have taken, in ns. Only the machine adds to it.
type Latencies struct {
	Last, Most, Sum atomic.Int64
	Buckets         [len(inside.LatencyBounds) + 1]atomic.Uint64
}

// add counts an exchange that has taken d ns.
func (l *Latencies) add(d int64) {
	i := 0
	for i < len(inside.LatencyBounds) && time.Duration(d) > inside.LatencyBounds[i] {
		i++
	}
	l.Last.Store(d)
	l.Most.Store(max(l.Most.Load(), d))
	l.Sum.Add(d)
	l.Buckets[i].Add(1)
}
