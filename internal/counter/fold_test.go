package counter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A window that is folded whenever it can be is in all one that never is: whatever
// happens to two of the same history, they say the same and are the same.
func TestFoldedWindowsAreTheSame(t *testing.T) {
	fixed := limit.Must(limit.FixedWindow("test", 50, time.Second))
	for i, r := range []*limit.Rule{windowRule(t, 10, 100*time.Millisecond, 10), windowRule(t, 1000, time.Second, 10), windowRule(t, 60, time.Hour, 1), fixed} {
		for _, linked := range []bool{false, true} {
			folds := 0
			for seed := range uint64(80) {
				folds += foldedOften(t, r, linked, seed)
				if t.Failed() {
					t.Fatalf("rule %d, %v, linked %v, seed %d", i, r, linked, seed)
				}
			}
			if folds < 500 {
				t.Errorf("%v, linked %v: folded %d times", r, linked, folds)
			}
		}
	}
	if foldedAway != (more{}) {
		t.Error("foldedAway, which all folded counters share, was written to")
	}
}

// foldedOften leads two counters through the same history, and returns how often one of
// them was folded with units.
func foldedOften(t *testing.T, r *limit.Rule, linked bool, seed uint64) (folds int) {
	rng := rand.New(rand.NewPCG(seed, 13))
	now := int64(1e12)
	both := [2]*same{newSame(r, linked, now), newSame(r, linked, now)}
	both[1].c.keepHistoryLocked(math.MaxInt64) // a key with a history is not folded
	other := changed(r)
	if r.Algorithm() == limit.AlgorithmFixedWindow {
		other = limit.Must(limit.FixedWindow(r.Name(), r.Limit()+1, r.Period()/2))
	}
	for range 600 {
		now += rng.Int64N(1 << rng.IntN(31))
		event, n := rng.IntN(50), 1+rng.Int64N(8)/7
		x, flip, rule := rng.Int64N(1<<rng.IntN(11))+1, rng.IntN(2) == 0, r
		if event == 1 {
			rule = other
		}
		var got [2]struct {
			res       limit.Result
			retention Retention
			units     int64
		}
		for i, s := range both {
			s.apply(event, now, x, flip, r)
			s.applyMore(event, now, x, flip, r)
			g := &got[i]
			if event%3 == 0 {
				g.res, _ = s.c.Ask(now, n, rule, flip)
			} else if event%3 == 1 {
				g.res.Allowed, g.res.Source, _ = s.c.Check(now, n, rule)
			}
			s.c.lock(now)
			g.retention, g.units = s.c.retentionLocked(now), s.c.unsyncedUnits()*1000+s.c.pendUnits()
			s.c.foldLocked()
			s.c.mu.Unlock() // not unlock: what is on lease is not seen
		}
		if both[1].c.isFolded() {
			t.Fatal("a key with a history is folded")
		}
		if both[0].c.isFolded() && (both[0].c.bucket.Pend.Units > 0 || both[0].c.bucket.Known.NS > 0) {
			folds++
		}
		if got[0] != got[1] {
			t.Errorf("%d units at %d: %+v, never folded %+v", n, now, got[0], got[1])
		}
		if rng.IntN(4) == 0 {
			compare(t, both[0].c, both[1].c)
			v, w := both[0].c.win(), both[1].c.win()
			for _, name := range []string{"moved", "sure", "claim", "known"} {
				if is, want := fmt.Sprintf("%#v", field(v, name)), fmt.Sprintf("%#v", field(w, name)); is != want {
					t.Errorf("%s: %s, never folded %s", name, is, want)
				}
			}
		}
	}
	return folds
}

// applyMore applies the events that only windows have, or only counters that may be folded.
func (s *same) applyMore(event int, now, x int64, flip bool, r *limit.Rule) {
	switch event {
	case 16:
		s.c.Reserve(now, x%3+1, r, Terms{Claim: flip})
	case 17:
		s.c.lock(now)
		s.c.claimLocked(0)
		s.c.mu.Unlock()
	case 18:
		if s.link == nil {
			s.c.Refund(now, x, r)
		}
	case 19:
		if s.link != nil {
			s.c.MarkRaise(now)
		}
	case 20:
		if s.link != nil && len(s.late) > 0 {
			s.late[0] = s.c.Resend(now, flip)
		}
	}
}

// Of keys that come and may not come again none keeps more memory than a leaky bucket, before
// they are reported and after, whatever is looked at besides.
func TestWindowsAreFolded(t *testing.T) {
	now := int64(1e12)
	for _, key := range []string{"k", strings.Repeat("k", MaxKey+1)} {
		for _, r := range []*limit.Rule{windowRule(t, 10, time.Second, 10), limit.Must(limit.FixedWindow("test", 10, time.Second))} {
			c := NewAlone(key, r, newTestLink(), now)
			folded := func(what string) {
				t.Helper()
				if c.mu.Lock(); !c.isFolded() {
					t.Errorf("%v, %d bytes, %s: is not folded", r, len(key), what)
				}
				c.mu.Unlock()
			}
			c.Ask(now, 1, r, true)
			folded("asked once")
			c.lock(now)
			if w := c.retentionLocked(now); w != Pinned || c.unsyncedUnits() != 1 || c.pendUnits() != 1 {
				t.Errorf("%v: %d units, retention %d", r, c.pendUnits(), w)
			}
			c.mu.Unlock()
			folded("looked at")
			rep, ok := c.Collect(now, Normal)
			if !ok || len(rep.Buckets) != 1 || rep.Buckets[0].Units != 1 {
				t.Fatalf("%v: reports %+v", r, rep)
			}
			c.Settle(now, Answer{Rule: r, Buckets: rep.Buckets, At: now, ServerNow: now})
			folded("answered")
			if c.MarkRaise(now); !c.is(raising) {
				t.Errorf("%v: does not raise what was lost", r)
			}
			folded("about to raise")
			if rep, ok = c.Collect(now, Normal); !ok || !rep.Raise || !slices.Equal(rep.KnownBuckets, []Bucket{{ID: now / int64(arith.Of(r.Arith()).Width), Units: 1}}) {
				t.Errorf("%v: raises %+v", r, rep)
			}
			c.Settle(now, Answer{Rule: r, Raised: true, Buckets: rep.KnownBuckets, At: now, ServerNow: now})
			if c.Check(now, 1, r); c.isFolded() {
				t.Errorf("%v: is folded while it is asked", r)
			}
			if got, _ := KeyOf(key); got != c.Key() {
				t.Errorf("%q has become %q", got, c.Key())
			}
			if res, _ := c.peek(now, 1, r); res.Remaining != 8 {
				t.Errorf("%v: %+v after 2 units", r, res)
			}
		}
	}
}

// Units in two buckets have no room, nor what else may be on its way.
func TestWindowsThatAreNotFolded(t *testing.T) {
	now, r := int64(1e12), windowRule(t, 10, time.Second, 10)
	for what, more := range map[string]func(c *Counter){
		"units in two buckets": func(c *Counter) { c.allow(now+int64(arith.Of(r.Arith()).Width), 1, r) },
		"known in another": func(c *Counter) {
			c.Collect(now, Normal)
			c.Settle(now, Answer{Rule: r, Buckets: []Bucket{{ID: now/int64(arith.Of(r.Arith()).Width) - 1, Units: 1}}, At: now, ServerNow: now})
			c.allow(now, 1, r)
		},
		"units under way": func(c *Counter) { c.Collect(now, Normal) },
		"units handed back": func(c *Counter) {
			c.Collect(now, Normal)
			c.Settle(now, Answer{Rule: r, Buckets: []Bucket{{ID: now / int64(arith.Of(r.Arith()).Width), Units: 1}}, At: now, ServerNow: now})
			c.Refund(now, 1, r)
		},
		"a claim":            func(c *Counter) { c.claimLocked(1) },
		"another multiplier": func(c *Counter) { c.link().SetMode(40, true); c.allow(now+1e10, 1, r) },
		"many buckets":       func(c *Counter) { c.allow(now, 1, windowRule(t, 10, time.Second, 50)) },
		"a reset":            func(c *Counter) { c.Renew(now, r, Renewal{Gen: 1, At: now, ServerNow: now}) },
	} {
		c := NewAlone("k", r, newTestLink(), now)
		c.link().Part(1).SetOffset(0, 1)
		c.allow(now, 1, r)
		c.allow(now, 1, r)
		more(c)
		if c.mu.Lock(); c.isFolded() {
			t.Errorf("%s: is folded", what)
		}
		if c.foldLocked(); c.isFolded() {
			t.Errorf("%s: can be folded", what)
		}
		c.mu.Unlock()
	}
}

// What was folded by one rule is unfolded by that when there is another: what has
// expired by then has by the old one.
func TestFoldedWindowsChangeRules(t *testing.T) {
	now := int64(1e12)
	r, longer := windowRule(t, 10, time.Second, 10), windowRule(t, 10, 2*time.Second, 10)
	for after, left := range map[time.Duration]int64{0: 9, 900 * time.Millisecond: 9, 1900 * time.Millisecond: 10} {
		c := NewAlone("k", r, nil, now)
		c.allow(now, 1, r)
		if !c.isFolded() {
			t.Fatal("is not folded")
		}
		if res, _ := c.peek(now+int64(after), 1, longer); res.Remaining != left {
			t.Errorf("after %v: %d units remain, want %d", after, res.Remaining, left)
		}
	}
}

// A waiter for units of a window that counts as many as there are keeps its claim.
func TestFoldedClaim(t *testing.T) {
	r, now := windowRule(t, 1<<53, time.Hour, 10), int64(1e12)
	c := NewAlone("k", r, newTestLink(), now)
	c.link().Part(1).SetOffset(0, 1)
	c.allow(now, 1, r)
	for i := range 2 { // more than can be distinguished from more and a claim
		if i == 1 {
			c.Reserve(now, 5, r, Terms{Claim: true})
		}
		if _, ok := c.Collect(now, Normal); !ok {
			t.Fatal("nothing to report")
		}
		last := algorithm.Bucket{ID: now / int64(arith.Of(r.Arith()).Width), Units: 1 << 62}
		c.Settle(now, Answer{Rule: r, Buckets: []algorithm.Bucket{last}, At: now, ServerNow: now})
		now += int64(time.Minute)
	}
	c.lock(now)
	if was := c.claimLocked(0); was != 5 {
		t.Errorf("%d units are kept, want 5", was)
	}
	c.mu.Unlock()
}

// Of many windows, each asked once and then looked at as a sweep does, none takes memory of
// its own.
func TestManyWindowsAreFolded(t *testing.T) {
	r, now := windowRule(t, 10, time.Minute, 10), start.UnixNano()
	group := &Group{Leases: new(Leases)}
	for i, k := range names("k", 3000) {
		c := New(k, r, uint64(i), nil, group, now)
		c.Enter(new(Entry), uint64(i+1))
		c.Check(now, 1, r)
		if used := c.Offer(); used {
			t.Fatal("a new counter looks used")
		}
		if _, ok := c.Drop(Idle, now); ok {
			t.Fatal("dropped in use")
		}
		if !c.isFolded() {
			t.Fatalf("%q is not folded", k)
		}
	}
}
