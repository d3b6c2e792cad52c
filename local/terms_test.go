package local

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Counters that were asked at different times lend by the same terms, if those are not too
// old for them, and each what it has itself.
func TestTermsAreShared(t *testing.T) {
	const units = 10
	rule := limit.Must(limit.Funnel("shared", units, 1, time.Second))
	other := rule
	for i := 0; other == rule || (other.Hash()^rule.Hash())%termsMost != 0; i++ {
		other = limit.Must(limit.Funnel(fmt.Sprint("other", i), units/2, 1, time.Second))
	}
	second := int64(time.Second)
	slots := NewSlots(nil)
	var first *terms
	for _, step := range []struct {
		at    int64 // s
		rule  *limit.Rule
		other bool // terms than the first
	}{
		{1000, rule, false}, {1003, rule, false}, {1000, rule, false}, {990, rule, true}, {1003, other, true},
		{1003, rule, true}, {1003 + 3*3600, rule, false}, {1003 + 80*3600, rule, true}, {1003, other, true},
	} {
		now := step.at * second
		c := NewCounter("k", step.rule, nil, now)
		b := slots.Bind(c, step.rule)
		admitted, lent := int64(0), 0
		for range 2 * units {
			if ok, _, _ := b.Allow(now); ok {
				admitted++
			}
			if c.lentTo() == &b.pocket && b.pocket.lent != unitsRefused {
				lent++
			}
		}
		is := b.pocket.terms.Load()
		if is == nil || lent == 0 {
			t.Fatalf("%d s, %v: has lent nothing", step.at, step.rule)
		}
		if first == nil || step.other {
			if is == first {
				t.Errorf("%d s, %v: lends by terms from %d", step.at, step.rule, is.base)
			}
			first = is
		}
		if is != first {
			t.Errorf("%d s, %v: lends by terms of its own", step.at, step.rule)
		}
		if admitted != step.rule.Limit() {
			t.Errorf("%d s, %v: %d units admitted", step.at, step.rule, admitted)
		}
		later := 0
		for range 3 {
			if ok, _, _ := b.Allow(now + 3*second/2); ok {
				later++
			}
		}
		if later != 1 {
			t.Errorf("%d s, %v: %d units admitted later", step.at, step.rule, later)
		}
	}
}

// Whatever a handle has been lent, and whenever it is asked, what it answers in few steps
// is what it answers at length.
func TestHandlesAnswerAsTheyAsk(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	hands := clock.NewManual(start)
	turn, base := newSeason(), start.UnixNano()
	said := map[Verdict]int{}
	for _, rule := range []*limit.Rule{
		funnelRule(t, 100, 1, time.Millisecond), funnelRule(t, 10, 3, time.Second), funnelRule(t, 1, 1, time.Nanosecond),
		limit.Must(limit.Funnel("month", 1000, 1000, 30*24*time.Hour)), windowRule(t, 100, time.Second, 10),
	} {
		for range 20_000 {
			tm := newTerms(rule, int64(time.Minute), base)
			tm.turn, tm.season, tm.source = turn, turn.n.Load()-uint32(rng.IntN(8)/7), limit.SourceSynced
			units := []uint64{0, 1, 2, loanMost, unitsRefused}[rng.IntN(5)]
			at := rng.Int64N(2*(tm.room+tm.one)+1000) & timeMost
			if tm.perNS == 0 || units == unitsRefused {
				at = rng.Int64N(timeMost) >> rng.IntN(48)
			}
			w := uint64(at)<<wordTime | units<<wordUnits | rng.Uint64N(numberMask+1)
			now := tm.base + rng.Int64N(2*tm.span)>>rng.IntN(40) - int64(rng.IntN(2))
			if rng.IntN(2) == 0 { // nearby: there one step makes the difference
				now = tm.base + at>>tm.coarse + rng.Int64N(5) - 2
			}
			var quick, long pocket
			for _, p := range []*pocket{&quick, &long} {
				p.terms.Store(tm)
				p.word.Store(w)
			}
			hands.Advance(time.Duration(now) - hands.Now())
			v, src := quick.answer(hands)
			_, wantSrc, want := long.ask(now)
			if v != want || src != wantSrc || quick.word.Load() != long.word.Load() {
				t.Fatalf("%v, %#x at %d: says %v as %v and leaves %#x, at length %v as %v and %#x",
					rule, w, now-tm.base, v, src, quick.word.Load(), want, wantSrc, long.word.Load())
			}
			said[v]++
		}
	}
	if len(said) < 3 || said[Refused] < 1000 || said[Admitted] < 1000 {
		t.Errorf("of too few kinds: %v", said)
	}
}

// Nobody writes to a line that each check reads.
func TestTermsFillLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for pointers of 8 bytes")
	}
	if size := unsafe.Sizeof(terms{}); size%64 != 0 {
		t.Errorf("%d bytes", size)
	}
}

// What a window lends ends with its bucket, as well as its terms can tell, and not later;
// and the counter learns when it was asked.
func TestTermsOfWindows(t *testing.T) {
	rule := limit.Must(limit.FixedWindow("w", 1000, time.Hour))
	hour, now := int64(time.Hour), int64(7*time.Hour+time.Hour/2)
	for _, before := range []int64{1, 1 << windowUnit, int64(time.Millisecond), int64(time.Second), int64(time.Minute)} {
		slots := NewSlots(nil)
		at := now/hour*hour + hour - before - 1000
		c := NewCounter("k", rule, nil, at)
		b := slots.Bind(c, rule)
		for range 30 {
			b.Allow(at)
		}
		lent := c.lentTo() != nil
		if want := before > 1<<windowUnit; lent != want && before != 1<<windowUnit {
			t.Errorf("%d ns before its end lends: %v", before, lent)
		}
		// What a window lends ends with a unit of its terms, and it was lent up to that much
		// after such a unit had begun.
		var v Verdict
		last := at
		for i := range int64(2000) {
			ns := i << windowUnit / 1000
			now := at + before + 1000 - ns
			if now < at {
				break
			}
			if _, _, v = b.pocket.ask(now); v == Admitted {
				last = now
				if ns == 0 {
					t.Errorf("admits in the next bucket")
				}
				break
			}
		}
		if lent && before < windowSpan/2 && v != Admitted {
			t.Errorf("%d ns before its end does not admit in the last half ms", before)
		}
		c.lock()
		if c.last != last {
			t.Errorf("was asked at %d, knows %d", last, c.last)
		}
		c.mu.Unlock()
	}
}

// However many terms there have been since, a slot does not take others for its own.
func TestTermsKeepTheirNumbers(t *testing.T) {
	slots := NewSlots(nil)
	now := int64(1e12)
	c := newCounter("k", fast, 0, nil, now)
	for c.slot.Load() == nil {
		slots.Allow(c, now, fast)
	}
	d := c.slot.Load()
	if slots.lodge.termsFrom(d.slot, signOf("k"), fast) != d.terms.Load() {
		t.Fatal("has no terms")
	}
	for range termsMost {
		slots.lodge.season.turn()
		if slots.lodge.termsOf(fast, limit.SourceLocal, slots.lodge.season.n.Load(), now) == nil {
			t.Fatal("no terms in a new season")
		}
		if is := slots.lodge.termsFrom(d.slot, signOf("k"), fast); is != nil && is != d.terms.Load() {
			t.Fatalf("takes terms %d for its own, which are %d", is.number, d.terms.Load().number)
		}
	}
}

// Whose number is given to others, because it is an old one, lends by new terms in time: in
// the same season, and while the old ones would be good for much longer.
func TestTermsAreRenewedWithTheirNumbers(t *testing.T) {
	hands := clock.NewManual(start)
	table := newTable(t, TableOptions{Clock: hands})
	tenant(t, table, "k", fast)
	first := slotOf(table, "k", fast).terms.Load()
	for i := range termsMost {
		hands.Advance(2 * time.Second)
		rule := limit.Must(limit.Funnel(fmt.Sprint("rule ", i), 10, 1, time.Second))
		if table.lodge.termsOf(rule, limit.SourceLocal, first.season, int64(hands.Now())) == nil {
			t.Fatal("no terms for another rule")
		}
	}
	if slotOf(table, "k", fast) != nil || first.over(table.lodge.season.n.Load(), int64(hands.Now())) {
		t.Fatal("the number is not given to others, or the terms are over")
	}
	for range 200 {
		table.Allow("k", fast, 1, int64(hands.Now()))
	}
	if s := slotOf(table, "k", fast); s == nil || s.terms.Load() == first {
		t.Error("no slot any more")
	}
}
