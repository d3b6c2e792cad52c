package algorithm

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// SlidingLog remembers when units were admitted. It holds at most one entry per unit of the limit.
// The zero SlidingLog is empty.
type SlidingLog struct {
	entries []logEntry // ascending by at
	used    int64
	claim   int64 // units reserved for a waiting caller
}

type logEntry struct {
	at, n int64
}

// expire removes the units that are at least one window old. A unit exactly as old as the window
// does not count.
func (l *SlidingLog) expire(r *arith.Rule, now int64) {
	i := 0
	for i < len(l.entries) && l.entries[i].at <= now-int64(r.Width) {
		l.used -= l.entries[i].n
		i++
	}
	if i > 0 {
		l.entries = append(l.entries[:0], l.entries[i:]...)
	}
}

// Fits reports whether cost more units stay within the limit.
func (l *SlidingLog) Fits(r *arith.Rule, now, cost int64) bool {
	l.expire(r, now)
	return cost <= r.Limit-l.used-l.claim
}

// Book counts n units, whether they fit or not.
func (l *SlidingLog) Book(_ *arith.Rule, now, n, _, _ int64) {
	if last := len(l.entries) - 1; last >= 0 && l.entries[last].at == now {
		l.entries[last].n += n
	} else {
		l.entries = append(l.entries, logEntry{at: now, n: n})
	}
	l.used += n
}

// Describe returns the whole answer to a check, see [State].
func (l *SlidingLog) Describe(r *arith.Rule, now, n, _ int64, allowed bool) limit.Result {
	l.expire(r, now)
	res := limit.Result{Allowed: allowed, Limit: r.Limit, Remaining: max(r.Limit-l.used-l.claim, 0)}
	if k := len(l.entries); k > 0 {
		res.ResetAfter = time.Duration(l.entries[k-1].at + int64(r.Width) - now)
	}
	switch {
	case allowed:
	case n > r.Limit:
		res.RetryAfter = limit.Never
	default:
		res.RetryAfter = l.wait(r, now, l.used+l.claim+n-r.Limit)
	}
	return res
}

// wait returns how long it takes until at least need units have left the window.
func (l *SlidingLog) wait(r *arith.Rule, now, need int64) time.Duration {
	for _, e := range l.entries {
		if need -= e.n; need <= 0 {
			return time.Duration(e.at + int64(r.Width) - now)
		}
	}
	return time.Duration(r.Width) // the claimed units are not taken yet
}

// Refund removes units, see [State].
func (l *SlidingLog) Refund(r *arith.Rule, now, _ int64, d Refund) (back, taken, withdrawn int64) {
	l.expire(r, now)
	for back < d.Units && len(l.entries) > 0 {
		last := &l.entries[len(l.entries)-1]
		k := min(d.Units-back, last.n)
		last.n -= k
		back += k
		if last.n == 0 {
			l.entries = l.entries[:len(l.entries)-1]
		}
	}
	l.used -= back
	return back, back, 0
}

// FitsAt returns now: the time is not computed.
func (l *SlidingLog) FitsAt(_ *arith.Rule, now, _ int64) int64 { return now }

// Usage reports whether any units count, and whether one more would be refused.
func (l *SlidingLog) Usage(r *arith.Rule, now int64) (used, denies bool) {
	l.expire(r, now)
	return l.used > 0, l.used >= r.Limit
}

// Claim reserves n units for a waiting caller, see [State].
func (l *SlidingLog) Claim(_ *arith.Rule, n, _ int64) (was int64) {
	was, l.claim = l.claim, n
	return was
}

// Set replaces what is counted by n units, at most the limit.
func (l *SlidingLog) Set(r *arith.Rule, now, n int64) {
	*l = SlidingLog{claim: l.claim}
	if n = min(n, r.Limit); n > 0 {
		l.Book(r, now, n, n, 1)
	}
}

// Reshape does nothing: units keep their times.
func (l *SlidingLog) Reshape(_, _ *arith.Rule, _, _ int64) int64 { return 0 }

// Spare returns 0: a log grants no leases.
func (l *SlidingLog) Spare(*arith.Rule, int64, Clock) int64 { return 0 }

// Lease is not called, see Spare.
func (l *SlidingLog) Lease(*arith.Rule, int64) (level arith.Span, until int64) { return level, 0 }

// Spend is not called, see Spare.
func (l *SlidingLog) Spend(*arith.Rule, int64, int64, int64, arith.Span) {}
