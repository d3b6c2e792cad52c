package hybrid

import (
	"sync/atomic"
	"time"
)

// Latency describes how long exchanges with Redis have taken that were answered in full: from
// when a pipeline or a heartbeat was sent until its answer was read. Those that failed are in
// [Stats].Failures instead. The zero Latency is that of none.
type Latency struct {
	Last, Max, Sum time.Duration
	// Buckets[i] is how many took at most Bounds()[i], and more than the bound before it. The
	// last one is of those that took more than all bounds.
	Buckets [latencyBounds + 1]uint64
}

const latencyBounds = 12

// latencyBound are the upper bounds of the buckets but the last.
var latencyBound = [latencyBounds]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// Bounds returns the upper bounds of all Buckets but the last. They are always the same.
func (Latency) Bounds() [latencyBounds]time.Duration { return latencyBound }

// Count returns the number of exchanges.
func (l Latency) Count() (n uint64) {
	for _, b := range l.Buckets {
		n += b
	}
	return n
}

// latencies counts exchanges for a Latency. Only the reconciler adds to it.
type latencies struct {
	last, most, sum atomic.Int64
	buckets         [latencyBounds + 1]atomic.Uint64
}

// add counts an exchange that has taken d ns.
func (l *latencies) add(d int64) {
	i := 0
	for i < latencyBounds && time.Duration(d) > latencyBound[i] {
		i++
	}
	l.last.Store(d)
	l.most.Store(max(l.most.Load(), d))
	l.sum.Add(d)
	l.buckets[i].Add(1)
}

func (l *latencies) load() (is Latency) {
	is.Last, is.Max, is.Sum = time.Duration(l.last.Load()), time.Duration(l.most.Load()), time.Duration(l.sum.Load())
	for i := range is.Buckets {
		is.Buckets[i] = l.buckets[i].Load()
	}
	return is
}
