package local

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// asking is a limit.Check in one line.
func asking(key string, r *limit.Rule, n int64) limit.Check {
	return limit.Check{Key: key, Rule: r, N: n}
}

// Rules that would re-express each other's counts at every call are a mistake.
func TestTakeAllOfOneNameAndManyPeriods(t *testing.T) {
	l := newLimiter(t, Options{Clock: clock.NewManual(start)})
	second, day := limit.Must(limit.FixedWindow("api", 10, time.Second)), limit.Must(limit.FixedWindow("api", 1000, 24*time.Hour))
	if v := l.TakeAll(asking("k", second, 1), asking("k", day, 1)); v.Allowed || v.By != 1 || v.RetryAfter != limit.Never {
		t.Errorf("%+v", v)
	}
	if v := l.TakeAll(asking("k", second, 1), asking("other", day, 1)); !v.Allowed {
		t.Errorf("other keys: %+v", v)
	}
	if left := l.Take("k", second, 0).Remaining; left != 9 {
		t.Errorf("%d remain", left)
	}
}

// Two plans of one rule, in one question: both must be kept.
func TestTakeAllOfTwoPlans(t *testing.T) {
	l := newLimiter(t, Options{Clock: clock.NewManual(start)})
	small, large := limit.Must(limit.FixedWindow("plan", 5, time.Hour)), limit.Must(limit.FixedWindow("plan", 50, time.Hour))
	if v := l.TakeAll(asking("k", small, 3), asking("k", large, 3)); v.Allowed || v.Rule != small {
		t.Errorf("%+v", v)
	}
	if v := l.TakeAll(asking("k", large, 2), asking("k", small, 3)); !v.Allowed || v.Rule != small || v.Remaining != 0 {
		t.Errorf("%+v", v)
	}
	if got := l.Take("k", large, 0).Remaining; got != 45 {
		t.Errorf("%d remain", got)
	}
}

func TestTakeAllDryRun(t *testing.T) {
	l := newLimiter(t, Options{Clock: clock.NewManual(start)})
	strict, wide := limit.Must(limit.FixedWindow("strict", 2, time.Hour)), limit.Must(limit.FixedWindow("wide", 5, time.Hour))
	for i, want := range []struct {
		allowed, would bool
		rule           *limit.Rule
	}{{true, false, strict}, {true, false, strict}, {true, true, strict}, {true, true, strict}, {true, true, strict}, {false, false, wide}} {
		v := l.TakeAll(asking("k", strict.DryRun(), 1), asking("k", wide, 1))
		if v.Allowed != want.allowed || v.WouldRefuse != want.would || v.Rule.Name() != want.rule.Name() {
			t.Errorf("%d: %+v", i, v)
		}
	}
	// Beside a dry run of its own counter a check has the room that it has alone.
	if v := l.TakeAll(asking("new", strict.DryRun(), 2), asking("new", strict, 1)); !v.Allowed || !v.WouldRefuse || l.Take("new", strict, 0).Remaining != 1 {
		t.Errorf("%+v", v)
	}
	if s, w := l.Take("k", strict, 0).Remaining, l.Take("k", wide, 0).Remaining; s != 0 || w != 0 {
		t.Errorf("%d and %d remain", s, w)
	}
}

// Any checks together agree with slow counters that are asked one by one.
func TestTakeAllAgainstReference(t *testing.T) {
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 21))
		c := clock.NewManual(start)
		l := newLimiter(t, Options{Clock: c})
		rules := tenPerSecond()
		refs := map[string]*limittest.Reference{}
		for range 300 {
			now := int64(c.Advance(time.Duration(rng.Int64N(2e8))))
			checks := make([]limit.Check, rng.IntN(7))
			sums, room := map[string]int64{}, true
			for i := range checks {
				q := asking(fmt.Sprint(rng.IntN(3)), rules[rng.IntN(4)], 1+rng.Int64N(5))
				if rng.IntN(30) == 0 {
					q.N = []int64{math.MaxInt64, math.MaxInt64/2 + 1, 1 << 61, 1 << 60}[rng.IntN(4)]
				}
				id := q.Key + q.Rule.Name()
				if refs[id] == nil {
					refs[id] = limittest.NewReference(q.Rule)
				}
				checks[i] = q
				sums[id] = min(sums[id], 1<<61) + min(q.N, 1<<61) // more than any has
				room = room && (sums[id] == 0 || sums[id] <= refs[id].Room(now))
			}
			v := l.TakeAll(checks...)
			if v.Allowed != room {
				t.Fatalf("seed %d: %v: %+v, want %v", seed, checks, v, room)
			}
			if !v.Allowed {
				if q := checks[v.By]; l.Take(q.Key, q.Rule, 0).Remaining >= sums[q.Key+q.Rule.Name()] {
					t.Fatalf("seed %d: %v: blames %d: %+v", seed, checks, v.By, v)
				}
				continue
			}
			for _, q := range checks {
				refs[q.Key+q.Rule.Name()].Add(now, q.N)
			}
			for _, q := range checks {
				if left, want := l.Take(q.Key, q.Rule, 0).Remaining, refs[q.Key+q.Rule.Name()].Room(now); left != want {
					t.Fatalf("seed %d: %d of %v %q remain, want %d", seed, left, q.Rule, q.Key, want)
				}
			}
		}
	}
}

// Many at once, in any order, with keys that come and go: nobody waits in a
// circle, and of no limit more is given than there is.
func TestTakeAllConcurrently(t *testing.T) {
	for _, keys := range []int{64, 1 << 16} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			l := newLimiter(t, Options{Clock: clock.NewManual(start), MaxKeys: keys})
			scarce := make([]*limit.Rule, 6)
			for i := range scarce {
				scarce[i] = limit.Must(limit.FixedWindow(fmt.Sprint("scarce", i), 1000, 24*time.Hour))
			}
			junk := slow(1 << 40)
			var given [6]atomic.Int64
			var all sync.WaitGroup
			for g := range uint64(8) {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(g, 5))
					for range 3000 {
						var checks [4]limit.Check
						for i := range 3 {
							r := rng.IntN(6)
							checks[i] = asking("k", scarce[r], 1+rng.Int64N(2))
						}
						checks[3] = asking(fmt.Sprint("junk", rng.IntN(50000)), junk, 1)
						if !l.TakeAll(checks[:]...).Allowed {
							continue
						}
						for _, q := range checks[:3] {
							given[q.Rule.Name()[6]-'0'].Add(q.N)
						}
					}
				})
			}
			all.Wait()
			for i, r := range scarce {
				// A table that is far too small may forget one that refuses nobody.
				if got, left := given[i].Load(), l.Take("k", r, 0).Remaining; got+left < 1000 || got+left > 1000 && keys > 64 {
					t.Errorf("%v: %d given and %d left", r, got, left)
				}
			}
		})
	}
}

// The answer is that of the check that refuses, or of the one with the least left. What cannot be asked is refused for
// ever, and none of the others is counted.
func TestTakeAll(t *testing.T) {
	l := newLimiter(t, Options{Clock: clock.NewManual(start)})
	second, day := limit.Must(limit.SlidingWindow("second", 10, time.Second)), limit.Must(limit.FixedWindow("day", 40, 24*time.Hour))
	for _, bad := range []limit.Check{asking("k", nil, 1), asking("k", new(limit.Rule), 1), asking("k", day, -1), asking("k", day, math.MinInt64), asking("k", day, 41)} {
		if v := l.TakeAll(asking("k", second, 1), bad, asking("k", day, 1)); v.Allowed || v.By != 1 || v.RetryAfter != limit.Never {
			t.Errorf("%+v: %+v", bad, v)
		}
	}
	if v := l.TakeAll(); !v.Allowed || v.By != -1 {
		t.Errorf("no checks: %+v", v)
	}
	// Who does not say how many asks for one.
	if v := l.TakeAll(asking("k", day, 0), asking("k", second, 0)); !v.Allowed || v.By != 1 || v.Rule != second || v.Remaining != 9 {
		t.Errorf("no number of units: %+v", v)
	}
	if v := l.TakeAll(asking("k", day, 1), asking("k", second, 10)); v.Allowed || v.By != 1 || v.RetryAfter <= 0 || v.RetryAfter > 2*time.Second {
		t.Errorf("10 of 9: %+v", v)
	}
	if v := new(Limiter).TakeAll(asking("k", second, 1)); v.Allowed {
		t.Errorf("zero limiter: %+v", v)
	}
}

// A check that does not say how many units asks for one: a forgotten N lets nothing pass for free.
//
// Fault 87: a `Check` without N.
func TestCheckWithoutN(t *testing.T) {
	l := newLimiter(t, Options{Clock: clock.NewManual(start)})
	for _, r := range tenPerSecond() {
		if v := l.TakeAll(limit.Check{Key: "k", Rule: r}); !v.Allowed || v.Remaining != 9 || l.Peek("k", r).Remaining != 9 {
			t.Errorf("%v: %+v", r, v)
		}
	}
}
