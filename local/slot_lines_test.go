package local

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A few busy keys have a cache line each, because different processors may ask for them;
// many share lines, because then there are fewer to wait for.
func TestSlotsShareLinesWhenMany(t *testing.T) {
	for _, c := range []struct {
		slots       int
		least, most int // lines for half of the slots
	}{
		{slotsFirst, slotsFirst/2 - 1, slotsFirst / 2}, {slotsApart, slotsApart/2 - 1, slotsApart / 2}, {2 * slotsApart, 0, 2 * slotsApart / 4},
	} {
		rows := newSlotRows(c.slots)
		lines := make(map[uintptr]bool)
		for row := range uint64(c.slots / slotWays) {
			for tag := range uint64(slotWays / 2) {
				d := rows.takeLocked((tag+1)<<57|row<<8, false, 1, 0)
				if d == nil {
					t.Fatal("no slot")
				}
				d.c.Store(new(Counter))
				d.mu.Unlock()
				lines[uintptr(unsafe.Pointer(d.slot))/64] = true
			}
		}
		if len(lines) < c.least || len(lines) > c.most {
			t.Errorf("half of %d slots are on %d lines, want %d to %d", c.slots, len(lines), c.least, c.most)
		}
	}
}

// A check that was interrupted after it had read the clock is not admitted sooner for that,
// by name or bound, nor does it make room for others.
func TestSlotsOfThePast(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		one := int64(time.Microsecond) * (1 + rng.Int64N(1000))
		rule := limit.Must(limit.Funnel("past", 3+rng.Int64N(50), 1, time.Duration(one)))
		now := int64(1e12)
		slots, empty := NewSlots(nil), int64(0) // when a funnel is that has been asked at the times that were read
		c := newCounter("k", rule, 0, nil, now)
		b := slots.Bind(c, rule)
		latest, answers, older := now, 0, 0
		for range 2000 {
			at := latest
			if rng.IntN(3) > 0 {
				latest += rng.Int64N(2 * one)
				at = latest
			} else {
				at -= rng.Int64N(1 + one*rng.Int64N(4)) // down to before the loan
			}
			was := c.slot.Load() != nil || c.lentTo() != nil
			var allowed bool
			if seed%2 == 0 {
				allowed, _, _ = slots.Allow(c, at, rule)
			} else {
				allowed, _, _ = b.Allow(at)
			}
			if is := c.slot.Load() != nil || c.lentTo() != nil; was && is {
				if answers++; at < latest && allowed {
					older++
				}
			}
			if allowed {
				if empty = max(empty, at) + one; empty-latest > one*rule.Limit() {
					t.Fatalf("seed %d, %v: holds %d ns of units at %d, after one of %d", seed, rule, empty-latest, latest, at)
				}
			}
		}
		if answers < 100 || older < 10 {
			t.Errorf("seed %d, %v: %d answers on loan, %d of them admitted by old readings", seed, rule, answers, older)
		}
	}
}

// Funnels that take months to run empty have times on loan that are rounded: never is a unit
// admitted later for that, at one moment as many as without a loan, and none much sooner.
func TestQuotasAreOnTime(t *testing.T) {
	const month = 30 * 24 * time.Hour
	for _, rule := range []*limit.Rule{
		limit.Must(limit.Funnel("month", 100, 100, month)), limit.Must(limit.Funnel("years", 700, 7, month)),
	} {
		n, ok := coarseOf(rule)
		if n == 0 || !ok {
			t.Fatalf("%v: %d bits, %v", rule, n, ok)
		}
		most := int64(1)<<n/rule.Ticks().PerNS + 1 // ns
		hands := clock.NewManual(start.Add(12_345_678_901))
		table := newTable(t, TableOptions{Clock: hands})
		h, r := boundKey(table, "bound", rule)
		plain := newCounter("k", rule, 0, nil, int64(hands.Now()))
		fits := func(now int64) bool { return plain.funnel.fits(rule, now, rule.Cost(1)) }
		answered, sooner, cycle := 0, 0, 0
		for i := range 30 * rule.Limit() {
			now := int64(hands.Now())
			bound, by := h.allowOne(r)
			named, _, counted := table.AllowBy(r, "named", rule, 1)
			if by || counted {
				answered++
			}
			if bound != named || bound && !fits(now+most) || !bound && fits(now) {
				t.Fatalf("%v, at %d: %v by name, %v bound; has room: %v, in %d ns: %v", rule, now, named, bound, fits(now), most, fits(now+most))
			}
			if i%7 == 0 { // takes back what is lent
				h.c.Load().Unsynced()
				table.Refund("named", rule, 0, now)
			}
			if bound {
				if !fits(now) {
					sooner++
				}
				plain.funnel.view = rule.Add(plain.funnel.view.Max(limit.Span{NS: now}), rule.One())
			}
			if !bound { // the first moment at which there is room for some, and those around
				room := int64(rule.Sub(rule.Add(plain.funnel.view, rule.Cost(min(10, rule.Limit()))), rule.Full()).Ceil())
				cycle++
				hands.Set(time.Unix(0, max(room+[]int64{-most - 1, -2, -1, 0, 1}[cycle%5], now+1)))
			}
		}
		if answered < int(rule.Limit())*3 || sooner == 0 {
			t.Errorf("%v: %d answers on loan, %d of them sooner", rule, answered, sooner)
		}
	}
}
