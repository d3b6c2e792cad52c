package algorithm

import (
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// newState returns an empty state for a rule.
func newState(rule *limit.Rule, now, off int64) State {
	switch {
	case IsWindow(rule):
		w := new(Window)
		w.Begin(arith.Of(rule), now, Clock{Off: off, Sure: true})
		return w
	case arith.Of(rule).Algorithm == arith.SlidingLog:
		return new(SlidingLog)
	}
	return new(LeakyBucket)
}

// usedAt returns how many units of a rule count at now.
func usedAt(s State, r *arith.Rule, now int64) int64 {
	if w, ok := s.(*Window); ok {
		w.Roll(r, now, 1)
	}
	return r.Limit - s.Describe(r, now, 0, 1, true).Remaining
}

func traceRules(t testing.TB) []*limit.Rule {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone data")
	}
	return []*limit.Rule{
		limittest.WindowRule(t, 10, time.Hour, 10), limittest.WindowRule(t, 15, time.Second, 10), limittest.WindowRule(t, 1, time.Minute, 10),
		limittest.WindowRule(t, 10, time.Hour, 1), limittest.WindowRule(t, 10, time.Hour, 100), limittest.WindowRule(t, 7, 10*time.Second, 1000),
		limit.Must(limit.FixedWindow("fixed", 1000, time.Hour)), limit.Must(limit.SlidingLog("log", 10, time.Hour)),
		limit.Must(limit.Quota("quota", 1000, limit.Calendar{Unit: limit.Month, Zone: zone})),
		limit.Must(limit.TokenBucket("bucket", 7, time.Hour, 10)), limit.Must(limit.TokenBucket("fast", 10_000_000, time.Second, 1<<40)),
		// More units than a field can count.
		limittest.WindowRule(t, 1000, time.Hour, 10), limittest.WindowRule(t, 1<<53, time.Hour, 10), limit.Must(limit.SlidingLog("log of many", 100, time.Hour)),
	}
}

// exact reports whether a trace of a rule holds each unit.
func exact(rule *limit.Rule) bool {
	return arith.Of(rule).Units > 0 || rule.Limit() <= 8191 || arith.Of(rule).Kept == 0 && rule.Limit() < 1<<51
}

// A state that is remembered and resumed again and again never counts less than one that was not, at any
// later time, if its units are few enough for their fields; and nothing after its time.
//
// Fault 106: what is remembered of a key is not less than what it has used.
func TestTraceNeverCountsLess(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, rule := range traceRules(t) {
		if !exact(rule) {
			continue
		}
		r := arith.Of(rule)
		for range limittest.Cases(2000, 300) {
			now, off := limittest.Start.UnixNano()+rng.Int64N(int64(r.Horizon())), rng.Int64N(2e12)-1e12
			if arith.Of(rule).Algorithm == arith.SlidingLog {
				off = 0
			}
			is, was := newState(rule, now, off), newState(rule, now, off)
			for range 12 {
				n := min(1+rng.Int64N(rule.Limit()), rule.Limit()-usedAt(is, r, now))
				if n > 0 && rng.IntN(2) == 0 {
					is.Book(r, now, n, n, 1)
					was.Book(r, now, n, n, 1)
				}
				trace := is.Trace(r, now, 1)
				if left := trace.ShareLeft(rule, now); (left == 0) != (trace == Trace{}) || left > 256 {
					t.Fatalf("%v: trace %+v, share %d", rule, trace, left)
				}
				now += rng.Int64N(int64(r.Horizon())/8 + 1)
				shared := rng.IntN(2) == 0 && arith.Of(rule).Algorithm != arith.SlidingLog
				next := newState(rule, now, off)
				if left := trace.ShareLeft(rule, now); left > 0 {
					next.Resume(r, now, trace)
				}
				if shared { // as a counter does until Redis answers
					next.(Replica).Collect(r)
					next.(Replica).KeepSent(r, 1)
					if known, used := next.(Replica).KnownUnits(r, now), usedAt(next, r, now); known > used || known < used-1 {
						t.Fatalf("%v: knows %d of %d", rule, known, used)
					}
				}
				is = next
				for _, later := range []int64{now, now + rng.Int64N(int64(r.Horizon())+1)} {
					a, b := newState(rule, now, off), newState(rule, now, off)
					clone(a, is)
					clone(b, was)
					got, want := usedAt(a, r, later), usedAt(b, r, later)
					if got < want {
						t.Fatalf("%v: %d units count after %v, %d did (shared %v)", rule, got, time.Duration(later-now), want, shared)
					}
				}
				if over := now + 2*int64(r.Horizon()); trace.ShareLeft(rule, over) != 0 {
					t.Fatalf("%v: the trace %+v counts for ever", rule, trace)
				}
			}
		}
	}
}

// clone copies a state for a look at another time.
func clone(to, from State) {
	switch from := from.(type) {
	case *Window:
		w := to.(*Window)
		*w = *from
		w.list = append([]bucket(nil), from.list...)
	case *SlidingLog:
		l := to.(*SlidingLog)
		*l = *from
		l.entries = append([]logEntry(nil), from.entries...)
	case *LeakyBucket:
		*to.(*LeakyBucket) = *from
	}
}

// A limit that is used up is used up when it is resumed, however large it is, and until the units leave.
// Where the fields are too small for the units, a key that is not used up gains and loses nothing on
// average, and no unit is added or lost by being remembered twice without a check between.
//
// Fault 106: large limits.
func TestTraceOfLargeLimits(t *testing.T) {
	for _, rule := range traceRules(t) {
		if exact(rule) {
			continue
		}
		r, now := arith.Of(rule), limittest.Start.UnixNano()
		resumed := func(s State) State {
			next := newState(rule, now, 0)
			next.Resume(r, now, s.Trace(r, now, 1))
			return next
		}
		s := newState(rule, now, 0)
		for i := range int64(9) { // a ninth each in buckets that follow each other
			s.Book(r, now, (i+1)*r.Limit/9-i*r.Limit/9, (i+1)*r.Limit/9-i*r.Limit/9, 1)
			if i < 8 {
				now += int64(r.Horizon()) / 11
				usedAt(s, r, now)
			}
		}
		for range 20 { // rounded at random it would have room in half of them
			if again := resumed(s); again.Fits(r, now, 1) {
				t.Fatalf("%v: used up, and has room again", rule)
			}
		}
		again := resumed(s)
		for at := now; at < now+int64(r.Horizon()); at += int64(r.Horizon()) / 37 {
			a, b := newState(rule, now, 0), newState(rule, now, 0)
			clone(a, again)
			clone(b, s)
			if got, want := usedAt(a, r, at), usedAt(b, r, at); got < want {
				t.Fatalf("%v: %d units count after %v, %d did", rule, got, time.Duration(at-now), want)
			}
		}
		// Units are rounded to a step, at random.
		step := float64(int64(1) << (bits.Len64(uint64(r.Limit)) + 1 - 13))
		sum := 0.0
		const runs = 20_000
		for range runs {
			s := newState(rule, now, 0)
			s.Book(r, now, r.Limit/7, r.Limit/7, 1)
			off := float64(usedAt(resumed(s), r, now) - r.Limit/7)
			if off > step || off < -step {
				t.Fatalf("%v: %v units more than %d", rule, off, r.Limit/7)
			}
			sum += off / step
		}
		if mean, most := sum/runs, 5*0.5/141.0; mean < -most || mean > most { // √20,000 = 141
			t.Errorf("%v: %.4f steps more on average, at most %.4f", rule, mean, most)
		}
	}
}

// A trace does not count again when its time has wrapped.
func TestTraceThatHasWrapped(t *testing.T) {
	for _, b := range []int{1, 10, 100} {
		rule := limittest.WindowRule(t, 10, time.Millisecond*time.Duration(b), b)
		r, now := arith.Of(rule), limittest.Start.UnixNano()
		s := newState(rule, now, 0)
		s.Book(r, now, 10, 10, 1)
		trace := s.Trace(r, now, 1)
		counts, looks := 0, 0
		for at := now + int64(time.Second); at < now+int64(time.Hour); at += int64(100*time.Millisecond) + 12_345 {
			if looks++; trace.ShareLeft(rule, at) != 0 {
				counts++
			}
		}
		if counts*1000 > looks { // 13 fields of 2¹⁶
			t.Errorf("%v: counts at %d of %d later times", rule, counts, looks)
		}
	}
}

// The clocks of two calls may differ by a little more than was measured: the units stay in their bucket.
func TestTraceAndClocks(t *testing.T) {
	rule := limittest.WindowRule(t, 10, time.Hour, 10)
	r, now := arith.Of(rule), limittest.Start.UnixNano()
	for _, off := range []int64{0, -17e9, 1e12 + 3} {
		for _, moved := range []int64{-int64(r.Width) / 5, 0, int64(r.Width) / 2} {
			s := newState(rule, now, off)
			s.Book(r, now, 4, 4, 1)
			trace := s.Trace(r, now, 1)
			next := newState(rule, now, off+moved).(*Window)
			next.Resume(r, now, trace)
			if id, want := next.list[0].id, s.(*Window).cur; id != min(want, next.cur) {
				t.Errorf("ahead by %d, then %d more: bucket %d, want %d", off, moved, id, want)
			}
		}
	}
}

// Who leaves again and again, with a limit of any size, never has more than one who stays: in no period does
// a sliding window or log admit more than documented, and units leave at most four tenths of it late.
//
// Fault 106: a key below its limit that leaves often.
func TestTraceDoesNotDrift(t *testing.T) {
	for _, lim := range []int64{3, 15, 16, 31, 46, 61, 100, 300, 1000, 5000} {
		for _, rule := range []*limit.Rule{limittest.WindowRule(t, lim, time.Hour, 10), limit.Must(limit.SlidingLog("log", lim, time.Hour))} {
			for seed := range uint64(limittest.Cases(40, 8)) {
				rng := rand.New(rand.NewPCG(seed, uint64(lim)))
				r, now := arith.Of(rule), limittest.Start.UnixNano()
				s, admitted := newState(rule, now, 0), []logEntry(nil)
				most, gap, every := 1+rng.Int64N(max(lim/4, 1)), 1+rng.Int64N(300), 1+rng.Int64N(60)
				for range 600 {
					now += rng.Int64N(2*gap) * int64(time.Second)
					if rng.Int64N(every) == 0 {
						trace := s.Trace(r, now, 1)
						now += rng.Int64N(gap) * int64(time.Second)
						if s = newState(rule, now, 0); trace.ShareLeft(rule, now) > 0 {
							s.Resume(r, now, trace)
						}
					}
					n := 1 + rng.Int64N(most)
					counts := usedAt(s, r, now)
					late, within := int64(0), int64(0) // what may count, and what must
					for _, e := range admitted {
						if e.at > now-int64(r.Horizon())*15/10 {
							late += e.n
						}
						if e.at > now-int64(time.Hour) {
							within += e.n
						}
					}
					if counts > late {
						t.Fatalf("%v: %d units count, %d were admitted in one and a half windows", rule, counts, late)
					}
					// A sliding window that nobody forgets counts its oldest bucket in part.
					if bound := within - (within+9)/10 - lim/10; counts < bound {
						t.Fatalf("%v: %d units count, %d were admitted in the last hour", rule, counts, within)
					}
					if counts+n <= r.Limit {
						s.Book(r, now, n, n, 1)
						admitted = append(admitted, logEntry{now, n})
						if within += n; within > lim+(lim+9)/10+1 {
							t.Fatalf("%v: %d units in an hour", rule, within)
						}
					}
				}
			}
		}
	}
}

// A bucket that was resumed can give back as many units as it took, also if a unit is no whole number
// of ns: the trace is rounded up.
func TestResumeOfABucketGivesBackWhatItTook(t *testing.T) {
	for _, rule := range []*limit.Rule{
		limit.Must(limit.TokenBucket("sevenths", 7, time.Hour, 10)), limit.Must(limit.TokenBucket("whole", 1, time.Second, 10)),
		limit.Must(limit.TokenBucket("fast", 10_000_000, time.Second, 1<<40)), limit.Must(limit.TokenBucket("thirds", 300_000_000, time.Second, 10)),
	} {
		r, now := arith.Of(rule), limittest.Start.UnixNano()
		for taken := range int64(11) {
			f := new(LeakyBucket)
			for range taken {
				f.Book(r, now, 1, 1, 1)
			}
			f.Resume(r, now, f.Trace(r, now, 1))
			if n, _ := f.Units(); taken > 0 && n != taken {
				t.Errorf("%v: %d of %d units are there", rule, n, taken)
			}
		}
	}
}
