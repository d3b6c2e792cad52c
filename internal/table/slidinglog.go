package table

import (
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// slidingLog remembers when units were admitted. The zero slidingLog is empty.
// It holds at most one entry per unit of the limit.
type slidingLog struct {
	entries []logEntry // ascending by at
	used    int64
	claim   int64 // units kept for a caller who waits
}

type logEntry struct {
	at, n int64
}

// expire forgets the units that are at least one window old. A unit exactly as
// old as the window no longer counts.
func (l *slidingLog) expire(r *limit.Rule, now int64) {
	i := 0
	for i < len(l.entries) && l.entries[i].at <= now-int64(r.Width()) {
		l.used -= l.entries[i].n
		i++
	}
	if i > 0 {
		l.entries = append(l.entries[:0], l.entries[i:]...)
	}
}

func (l *slidingLog) take(r *limit.Rule, now, n int64, book bool) bool {
	l.expire(r, now)
	if n > r.Limit()-l.used-l.claim {
		return false
	}
	if book {
		l.book(now, n)
	}
	return true
}

// book counts n units, whether they fit or not.
func (l *slidingLog) book(now, n int64) {
	if last := len(l.entries) - 1; last >= 0 && l.entries[last].at == now {
		l.entries[last].n += n
	} else {
		l.entries = append(l.entries, logEntry{at: now, n: n})
	}
	l.used += n
}

func (l *slidingLog) describe(r *limit.Rule, now, n int64, allowed bool) limit.Result {
	l.expire(r, now)
	res := limit.Result{Allowed: allowed, Limit: r.Limit(), Remaining: max(r.Limit()-l.used-l.claim, 0)}
	if k := len(l.entries); k > 0 {
		res.ResetAfter = time.Duration(l.entries[k-1].at + int64(r.Width()) - now)
	}
	switch {
	case allowed:
	case n > r.Limit():
		res.RetryAfter = limit.Never
	default:
		res.RetryAfter = l.wait(r, now, l.used+l.claim+n-r.Limit())
	}
	return res
}

// wait returns how long until at least need units have left the window.
func (l *slidingLog) wait(r *limit.Rule, now, need int64) time.Duration {
	for _, e := range l.entries {
		if need -= e.n; need <= 0 {
			return time.Duration(e.at + int64(r.Width()) - now)
		}
	}
	return time.Duration(r.Width()) // claimed units have still to be taken
}

// refund takes n units off, the newest first, as far as there are so many, and
// returns how many.
func (l *slidingLog) refund(r *limit.Rule, now, n int64) (back int64) {
	l.expire(r, now)
	for back < n && len(l.entries) > 0 {
		last := &l.entries[len(l.entries)-1]
		k := min(n-back, last.n)
		last.n -= k
		back += k
		if last.n == 0 {
			l.entries = l.entries[:len(l.entries)-1]
		}
	}
	l.used -= back
	return back
}
