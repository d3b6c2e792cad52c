// Package limittest has what tests of windows have in common: loads that are hard on
// them, and an exact log of what was admitted.
package limittest

import (
	"math"
	"math/rand/v2"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Ask is a caller who wants up to N units at a time, in ns since the epoch.
type Ask struct{ At, N int64 }

// Window returns the length of the window that a rule counts, in ns: that of its buckets.
func Window(r *limit.Rule) int64 { return int64(arith.Of(r).Width) * int64(arith.Of(r).Buckets) }

// Bound returns the most units that any true window may hold: the limit, and one
// bucket's share of it, rounded up.
func Bound(r *limit.Rule) int64 {
	b := int64(arith.Of(r).Buckets)
	return r.Limit() + (r.Limit()+b-1)/b
}

// Log is an exact log of admitted units, in order of time. A unit that is a window old
// does not count any more. The zero Log is not usable.
type Log struct {
	Most  int64 // units in any window so far
	Total int64

	window   int64
	at, n    []int64
	from     int
	counting int64
}

// NewLog returns an empty log for a window of so many ns.
func NewLog(window int64) *Log { return &Log{window: window} }

// Count returns the units that are less than a window old.
func (l *Log) Count(now int64) int64 {
	for l.from < len(l.at) && l.at[l.from] <= now-l.window {
		l.counting -= l.n[l.from]
		l.from++
	}
	return l.counting
}

// Add adds n units.
func (l *Log) Add(now, n int64) {
	l.at, l.n = append(l.at, now), append(l.n, n)
	l.counting, l.Total = l.counting+n, l.Total+n
	l.Most = max(l.Most, l.Count(now))
}

// TakeAtMost admits what is left of a limit, up to n units, and returns how many.
func (l *Log) TakeAtMost(now, n, limit int64) int64 {
	n = max(min(n, limit-l.Count(now)), 0)
	if n > 0 {
		l.Add(now, n)
	}
	return n
}

// Steady is one unit after another, so many times as fast as the limit, for so many
// windows.
func Steady(r *limit.Rule, start int64, times float64, windows int) (load []Ask) {
	apart := float64(Window(r)) / (float64(r.Limit()) * times)
	for t := 0.0; t < float64(windows)*float64(Window(r)); t += apart {
		load = append(load, Ask{start + int64(t), 1})
	}
	return load
}

// Bursts is the whole limit at once, so many windows apart, n times.
func Bursts(r *limit.Rule, start int64, apart float64, n int) (load []Ask) {
	for i := range n {
		load = append(load, Ask{start + int64(float64(i)*apart*float64(Window(r))), r.Limit()})
	}
	return load
}

// HeavyTailed is n bursts at random times, 20 in a window, most of them small, and some of
// several limits.
func HeavyTailed(rng *rand.Rand, r *limit.Rule, start int64, n int) (load []Ask) {
	alpha := 1.1 + rng.Float64()
	t := float64(start)
	for range n {
		t += rng.ExpFloat64() * float64(Window(r)) / 20
		units := math.Pow(rng.Float64(), -1/alpha) * float64(r.Limit()) / 40
		load = append(load, Ask{int64(t), int64(min(max(units, 1), 3*float64(r.Limit())))})
	}
	return load
}

// Adverse is n steps that aim at what buckets do not know: much at once at their ends and
// beginnings, again as soon as a window has passed or a little before, and trickles.
func Adverse(rng *rand.Rand, r *limit.Rule, start int64, n int) (load []Ask) {
	width, t := int64(arith.Of(r).Width), start
	few := func() int64 { return 1 + rng.Int64N(max(width/64, 1)) }
	for range n {
		was := t
		switch rng.IntN(7) {
		case 0: // at the end of a bucket
			t = t - t%width + width*(1+rng.Int64N(2)) - few()
		case 1: // at the beginning of the next
			t = t - t%width + width + []int64{0, few()}[rng.IntN(2)]
		case 2: // about a window later
			t += Window(r) + []int64{0, -1, 1, -few(), few()}[rng.IntN(5)]
		case 3: // some time before that
			t += Window(r) - rng.Int64N(width)
		case 4:
			t += rng.Int64N(width)
		case 5:
			t += few()
		default:
			t += rng.Int64N(Window(r))
		}
		t = max(t, was)
		most := r.Limit()
		load = append(load, Ask{t, []int64{1, 1 + rng.Int64N(most), (most + 1) / 2, most, 2 * most}[rng.IntN(5)]})
	}
	return load
}
