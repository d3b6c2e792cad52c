package reconcile

import (
	"math/rand/v2"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// A wheel holds counters as a map by ticks does. A counter is due with the first look at or after the tick that its time
// belongs to: the tick is named by its beginning. One that asks for longer than the wheel holds comes with its last slot, one
// whose tick is over with the next. Time may go back, and nobody may look for long.
func TestWheelAgainstAMap(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tick := 1 + rng.Int64N(20)
		most, phase := rng.Int64N(6*tick), rng.Int64N(tick)
		w, held := newWheel(tick, most, phase), map[*counter.Counter]int64{}
		now, from := phase, int64(0) // from: the next tick that may be due
		add := func(c *counter.Counter, at int64) {
			w.add(c, at)
			held[c] = min(max((at-phase)/tick, from), from+most/tick+1)
		}
		for range 200 {
			switch rng.IntN(8) {
			case 0:
				now = max(now-rng.Int64N(3*tick), phase)
			case 1:
				now += rng.Int64N(1000 * tick)
			default:
				now += rng.Int64N(2 * tick)
			}
			from = max(from, (now-phase)/tick+1)
			w.due(now, func(c *counter.Counter) {
				if at, ok := held[c]; !ok || at >= from {
					t.Fatalf("seed %d: of tick %d (%v), and due before tick %d", seed, at, ok, from)
				}
				delete(held, c)
			})
			for range rng.IntN(4) {
				add(new(counter.Counter), []int64{now + rng.Int64N(10*tick) - 3*tick, -400, 1 << 60}[rng.IntN(12)/5])
			}
			if rng.IntN(20) == 0 {
				last := int64(0)
				w.all(func(c *counter.Counter) {
					if held[c] < last {
						t.Fatalf("seed %d: tick %d after tick %d", seed, held[c], last)
					}
					last = held[c]
					if delete(held, c); rng.IntN(4) == 0 {
						add(c, now) // put back, into a slot that was emptied before
					}
				})
			}
			next := int64(0)
			for _, at := range held {
				if at < from {
					t.Fatalf("seed %d: of tick %d, and not due at tick %d", seed, at, from-1)
				}
				if is := at*tick + phase; next == 0 || is < next {
					next = is
				}
			}
			if w.held != len(held) || w.next() != next || w.after(now) <= now || w.after(now) > now+tick || w.at(w.after(now)) != w.at(now)+1 {
				t.Fatalf("seed %d: it holds %d of %d, the next at %d, want %d; the tick after %d is at %d", seed, w.held, len(held), w.next(), next, now, w.after(now))
			}
		}
	}
	// A tick of 1 ns would need a million slots.
	if w := newWheel(1, 1_022_000, 0); len(w.slots) > mostSlots || w.tick != 1000 {
		t.Errorf("%d slots, %d ns apart", len(w.slots), w.tick)
	}
}
