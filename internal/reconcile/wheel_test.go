package reconcile

import (
	"slices"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// onWheel is a wheel whose counters have numbers.
type onWheel struct {
	*wheel
	of map[*counter.Counter]int
}

func (w *onWheel) put(number int, at int64) {
	c := new(counter.Counter)
	w.of[c] = number
	w.add(c, at)
}

func (w *onWheel) dueBy(now int64) (got []int) {
	w.due(now, func(c *counter.Counter) { got = append(got, w.of[c]) })
	return got
}

// A counter is due with the first look at or after the tick that its time belongs to: the
// tick is named by its beginning. One that asks for longer than the wheel holds
// comes with its last slot.
func TestWheelTimeline(t *testing.T) {
	type put struct {
		number int
		at     int64
	}
	type step struct {
		now  int64
		due  []int
		put  []put
		next int64
	}
	for name, c := range map[string]struct {
		tick, most, phase int64
		steps             []step
	}{
		"in order": {10, 30, 0, []step{
			{0, nil, []put{{1, 25}, {2, 10}, {3, 19}, {4, 30}}, 10},
			{9, nil, nil, 10},
			{10, []int{2, 3}, nil, 20},
			{35, []int{1, 4}, nil, 0},
		}},
		"in the past": {10, 30, 0, []step{
			{1000, nil, []put{{1, 5}, {2, -400}, {3, 1000}, {4, 1009}}, 1010}, // this tick is over
			{1009, nil, nil, 1010},
			{1010, []int{1, 2, 3, 4}, nil, 0},
		}},
		"far ahead": {10, 30, 0, []step{
			{0, nil, []put{{1, 1 << 60}, {2, 51}, {3, 50}}, 50}, // 5 slots, of which that of now is over
			{49, nil, nil, 50},
			{50, []int{1, 2, 3}, nil, 0},
		}},
		"round and round": {10, 30, 0, []step{
			{0, nil, []put{{1, 20}}, 20},
			{20, []int{1}, []put{{1, 50}, {2, 60}}, 50},
			{50, []int{1}, []put{{1, 90}}, 60},
			{60, []int{2}, []put{{2, 70}}, 70},
			{70, []int{2}, nil, 90},
			{90, []int{1}, nil, 0},
		}},
		"nobody looked for long": {10, 30, 0, []step{
			{0, nil, []put{{1, 10}, {2, 20}}, 10},
			{1_000_005, []int{1, 2}, []put{{3, 1_000_030}}, 1_000_030},
			{1_000_029, nil, nil, 1_000_030},
			{1_000_030, []int{3}, nil, 0},
		}},
		"time goes back": {10, 30, 0, []step{
			{100, nil, nil, 0},
			{40, nil, []put{{1, 50}}, 110},
			{100, nil, nil, 110},
			{110, []int{1}, nil, 0},
		}},
		"ticks of its own": {10, 30, 7, []step{
			{7, nil, []put{{1, 16}, {2, 17}, {3, 26}, {4, 27}}, 17}, // the tick of the first is over
			{16, nil, nil, 17},
			{17, []int{1, 2, 3}, nil, 27},
			{27, []int{4}, nil, 0},
		}},
		// A tick of 1 ns would need a million slots.
		"coarse": {1, 1_022_000, 0, []step{
			{0, nil, []put{{1, 1500}, {2, 1_022_000}}, 1000},
			{1000, []int{1}, nil, 1_022_000},
			{1_022_000, []int{2}, nil, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &onWheel{newWheel(c.tick, c.most, c.phase), map[*counter.Counter]int{}}
			if len(w.slots) > mostSlots {
				t.Errorf("%d slots", len(w.slots))
			}
			held := 0
			for _, step := range c.steps {
				due := w.dueBy(step.now)
				for _, p := range step.put {
					w.put(p.number, p.at)
				}
				if slices.Sort(due); !slices.Equal(due, step.due) || w.next() != step.next {
					t.Fatalf("at %d: %v are due, the next at %d; want %v and %d", step.now, due, w.next(), step.due, step.next)
				}
				if held += len(step.put) - len(due); w.held != held {
					t.Fatalf("at %d: it holds %d, want %d", step.now, w.held, held)
				}
			}
		})
	}
}

// all empties the wheel wherever it stands, and what is put back by who takes it out is
// kept for its time.
func TestWheelAll(t *testing.T) {
	for turns := range int64(12) {
		w := &onWheel{newWheel(10, 30, 3), map[*counter.Counter]int{}}
		now := 3 + 10*turns
		w.dueBy(now)
		for i := range 4 {
			w.put(i, now+10*int64(i+1))
		}
		var got []int
		w.all(func(c *counter.Counter) { got = append(got, w.of[c]) })
		if !slices.Equal(got, []int{0, 1, 2, 3}) || w.held != 0 || w.next() != 0 {
			t.Fatalf("after %d ticks: %v in this order, %d are still held", turns, got, w.held)
		}
		w.put(4, now+20)
		w.all(func(c *counter.Counter) {
			if w.held == 0 {
				w.add(c, now+10) // as an earlier one: its slot was emptied before
			}
		})
		if due := w.dueBy(now + 20); !slices.Equal(due, []int{4}) || w.held != 0 {
			t.Errorf("after %d ticks: %v are due of what was put back, %d held", turns, due, w.held)
		}
	}
}
