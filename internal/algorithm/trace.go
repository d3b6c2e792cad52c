package algorithm

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Trace is what is remembered of a state whose counter was dropped, in 72 bits: how much of the limit
// is used, and until when. It is read by the rule that the state counted by. Its times are of the
// clock of the checks. The zero Trace remembers nothing.
//
// The trace of a leaky bucket is the time at which it will be empty, in ns. That is exact.
//
// The trace of a window is the end of its newest bucket with units, and how many units each bucket has. The
// lower traceUnits bits hold the units, in one field for each bucket. If the units of a bucket are too many
// for its field, there are fewer and larger fields: two buckets share one, or four. Above them is which
// grid it is, one of grids, and the end of the newest field, in quarters of a field; that wraps after
// 2¹⁶ fields. Units of buckets that share a field leave with the newest of them: never early, and a key that
// leaves again and again moves them no further, because each grid divides the next one.
//
// So up to 8,191 units in four tenths of a sliding window are exact, whatever the limit is, and more of a fixed
// window. More than that are rounded to a 2,048th of the limit or less, at random: no key gains or loses by
// it on average. Windows of more than 11 buckets begin with several buckets in a field.
//
// The trace of a log is that of a window with ten buckets.
type Trace struct {
	Bits uint64
	High uint8 // the upper bits of the end
}

const (
	traceUnits  = 52 // bits for the units
	traceEnd    = 18 // bits for the end; those that are not in High are the upper ones of Bits
	traceFields = 11 // the largest number of fields: the buckets of a sliding window with the default number, the oldest in part
	grids       = 4  // the last one rounds
)

// grid is how a trace divides the time of a window.
type grid struct {
	number  int
	fields  int64 // number of fields
	size    int64 // bits of a field
	buckets int64 // of the window, in one field
	width   int64 // of a bucket, ns
	shift   int64 // a field counts 1<<shift units
}

// newGrid returns a grid for a window of so many buckets of a width.
func newGrid(r *arith.Rule, number int, buckets, width int64) grid {
	span := buckets - 1 // from the newest bucket to the oldest
	g := grid{number: number, width: width, buckets: max((span+traceFields-2)/(traceFields-1), 1)}
	for i := 0; i < min(number, 2) && 10*g.buckets <= 2*span; i++ {
		g.buckets *= 2
	}
	g.fields = (span+g.buckets-1)/g.buckets + 1
	g.size = traceUnits / g.fields
	if number == grids-1 { // twice the limit is in a field
		g.shift = max(int64(bits.Len64(uint64(r.Limit)))+1-g.size, 0)
	}
	return g
}

func windowGrid(r *arith.Rule, number int) grid {
	return newGrid(r, number, int64(r.Kept)+1, int64(r.Width))
}

func logGrid(r *arith.Rule, number int) grid {
	return newGrid(r, number, traceFields, max(int64(r.Width)/(traceFields-1), 1))
}

// number returns the number of the grid.
func (t Trace) number() int { return int(t.Bits >> traceUnits & (grids - 1)) }

// grid returns the grid of a trace of a rule that is no leaky bucket.
func (t Trace) grid(rule *limit.Rule) grid {
	r, number := arith.Of(rule), t.number()
	if arith.Of(rule).Algorithm == arith.SlidingLog {
		return logGrid(r, number)
	}
	return windowGrid(r, number)
}

// most is the largest value of a field, length how long a field is, and tick the unit of the end, in ns.
func (g *grid) most() uint64  { return 1<<g.size - 1 }
func (g *grid) length() int64 { return g.width * g.buckets }
func (g *grid) tick() int64   { return max(g.length()/4, 1) }

// pack packs units by field, the newest first; the newest has some. ok reports whether they fit. The end of the
// newest field is rounded up, and a tick later: so a small correction of the clocks does not move it to another
// field. What is rounded is rounded up if full is set, because a used-up key must not have room again.
func (g *grid) pack(end int64, full bool, units *[traceFields]int64) (t Trace, ok bool) {
	for i := range g.fields {
		n, rest := uint64(units[i])>>g.shift, uint64(units[i])&(1<<g.shift-1)
		if rest > 0 && (full || rand.Uint64N(1<<g.shift) < rest) {
			n++
		}
		if n > g.most() && g.number < grids-1 {
			return t, false
		}
		t.Bits |= min(n, g.most()) << (i * g.size)
	}
	if t.Bits == 0 {
		return t, true
	}
	at := uint64((end+g.tick()-1)/g.tick() + 1)
	t.Bits |= uint64(g.number)<<traceUnits | at<<(traceUnits+2)
	t.High = uint8(at >> (64 - traceUnits - 2))
	return t, true
}

// endOf returns the time that pack has packed, up to two ticks later than that time.
func (t Trace) endOf(g *grid, now int64) int64 {
	tick := now / g.tick()
	at := t.Bits>>(traceUnits+2) | uint64(t.High)<<(64-traceUnits-2)
	ago := int64((uint64(tick)-at)<<(64-traceEnd)) >> (64 - traceEnd)
	return (tick - ago) * g.tick()
}

// unpack calls f for each field that has units, the newest first.
func (t Trace) unpack(g *grid, f func(field, units int64)) {
	for i := range g.fields {
		if n := t.Bits >> (i * g.size) & g.most(); n > 0 {
			f(i, int64(min(n<<g.shift, MaxUnits)))
		}
	}
}

// Ended reports whether nothing of a trace counts any more.
func (t Trace) Ended(rule *limit.Rule, now int64) bool {
	if arith.Of(rule).Units > 0 {
		return int64(t.Bits) <= now
	}
	g := t.grid(rule)
	left := t.endOf(&g, now) - now
	return left <= -(g.fields-1)*g.length() || left > 2*g.length() // a later end is one that has wrapped
}

// ShareLeft returns how much of the limit of its rule a trace still counts as, in 1/256: at least 1 as
// long as anything counts, and at most 256. 0: nothing counts any more.
func (t Trace) ShareLeft(rule *limit.Rule, now int64) (share int) {
	r := arith.Of(rule)
	used, all := int64(0), r.Limit
	switch {
	case t.Ended(rule, now):
		return 0
	case r.Units > 0:
		used, all = int64(t.Bits)-now, int64(r.Full.Ceil())
	default:
		g := t.grid(rule)
		age := max(floor(now-t.endOf(&g, now)+g.length(), g.length()), 0)
		t.unpack(&g, func(field, units int64) {
			if field+age < g.fields {
				used += units
			}
		})
	}
	if used <= 0 {
		return 0
	}
	return int(min(max(float64(used)/float64(max(all, 1))*256, 1), 256))
}

// Trace returns what to remember of the bucket.
func (f *LeakyBucket) Trace(_ *arith.Rule, now, _ int64) (t Trace) {
	if at := int64(f.View.Ceil()); at > now {
		t.Bits = uint64(at)
	}
	return t
}

// Resume continues, in a new bucket, where another was dropped.
func (f *LeakyBucket) Resume(r *arith.Rule, now int64, t Trace) {
	f.View = arith.Span{NS: int64(t.Bits)}
	// The trace is rounded up to a ns, which is no further unit that a refund could give back.
	f.Pend = Run{Units: min(r.WholeUp(r.Sub(f.View, arith.Span{NS: now + 1})), MaxUnits), TAT: f.View}
}

// ForgetKnown clears the known part.
func (f *LeakyBucket) ForgetKnown(r *arith.Rule, multiplier int64) {
	f.Known = arith.Span{}
	f.compose(r, multiplier)
}

// Trace returns what to remember of the window.
func (w *Window) Trace(r *arith.Rule, now, multiplier int64) (t Trace) {
	_, full := w.Usage(r, now)
	for number := range grids {
		g := windowGrid(r, number)
		newest, units := int64(math.MinInt64), [traceFields]int64{}
		for i := len(w.list) - 1; i >= 0; i-- { // the newest first
			n := w.list[i].count(max(multiplier, 1))
			if n == 0 {
				continue
			}
			at := floor(w.list[i].id, g.buckets)
			newest = max(newest, at)
			if field := newest - at; field < g.fields {
				units[field] = min(units[field]+n, MaxUnits)
			}
		}
		if newest == math.MinInt64 {
			return t
		}
		var ok bool
		if t, ok = g.pack(r.Ends(newest*g.buckets+g.buckets-1)-w.off, full, &units); ok {
			break
		}
	}
	return t
}

// Resume continues, in a new window, where another was dropped. When the last unit of a bucket came
// is not remembered, so its units leave as late as they can.
func (w *Window) Resume(r *arith.Rule, now int64, t Trace) {
	g := windowGrid(r, t.number())
	next := floor(r.Index(t.endOf(&g, now)+w.off), g.buckets) // number of the field after the newest
	t.unpack(&g, func(field, units int64) {
		id := min((next-field)*g.buckets-1, w.cur)
		if id < w.cur-int64(r.Kept) {
			return
		}
		b := w.bucket(r, id)
		b.last = int64(r.Width) - 1
		if id == w.cur {
			b.last = w.elapsed(r, now)
		}
		b.pend, w.pendUnits = b.pend+units, w.pendUnits+units
	})
	w.sum(r, 1)
}

// ForgetKnown clears the known part.
func (w *Window) ForgetKnown(r *arith.Rule, multiplier int64) {
	for i := range w.list {
		w.list[i].known = 0
	}
	w.sum(r, multiplier)
}

// Trace returns what to remember of the log.
func (l *SlidingLog) Trace(r *arith.Rule, now, _ int64) (t Trace) {
	_, full := l.Usage(r, now)
	if len(l.entries) == 0 {
		return t
	}
	for number := range grids {
		g := logGrid(r, number)
		newest, units := floor(l.entries[len(l.entries)-1].at, g.length()), [traceFields]int64{}
		for _, e := range l.entries {
			units[min(newest-floor(e.at, g.length()), g.fields-1)] += e.n
		}
		var ok bool
		if t, ok = g.pack((newest+1)*g.length(), full, &units); ok {
			break
		}
	}
	return t
}

// Resume continues, in a new log, where another was dropped.
func (l *SlidingLog) Resume(r *arith.Rule, now int64, t Trace) {
	g := logGrid(r, t.number())
	newest := floor(t.endOf(&g, now), g.length()) - 1
	t.unpack(&g, func(field, units int64) {
		if at := min((newest-field+1)*g.length()-1, now); at > now-int64(r.Width) {
			l.entries = append([]logEntry{{at, units}}, l.entries...)
			l.used += units
		}
	})
}

// floor returns a / b, rounded down. b is positive.
func floor(a, b int64) int64 {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}
