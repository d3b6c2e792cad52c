package hybrid

import "github.com/hybridlimit/hybridlimit/internal/table"

// wheel holds the counters that will have to report, by when: so that those that are due
// at about the same time travel together. Its slots are one tick apart, and go round.
type wheel struct {
	tick     int64 // ns
	phase    int64 // of the ticks, so that nodes do not report in step
	slots    [][]*table.Counter
	nextTick int64 // the slot of this tick is due next
	held     int   // counters in all slots
}

// mostSlots bounds the slots of a wheel.
const mostSlots = 1024

// newWheel returns a wheel on which a counter waits for at most a time. All are in ns.
func newWheel(tick, most, phase int64) *wheel {
	tick = max(tick, most/(mostSlots-2))
	return &wheel{tick: tick, phase: phase % tick, slots: make([][]*table.Counter, most/tick+2)}
}

// at returns the tick of a time.
func (w *wheel) at(now int64) int64 { return (now - w.phase) / w.tick }

// after returns when the next tick after a time is.
func (w *wheel) after(now int64) int64 { return (w.at(now)+1)*w.tick + w.phase }

// add has c wait until a time, or for as long as it can.
func (w *wheel) add(c *table.Counter, at int64) {
	tick := min(max(w.at(at), w.nextTick), w.nextTick+int64(len(w.slots))-1)
	i := tick % int64(len(w.slots))
	w.slots[i] = append(w.slots[i], c)
	w.held++
}

// due hands over what is due by now.
func (w *wheel) due(now int64, f func(*table.Counter)) {
	to := w.at(now)
	for n := 0; n < len(w.slots) && w.nextTick <= to; n++ {
		w.empty(w.nextTick, f)
		w.nextTick++
	}
	w.nextTick = max(w.nextTick, to+1)
}

// all hands over everything.
func (w *wheel) all(f func(*table.Counter)) {
	for i := range int64(len(w.slots)) {
		w.empty(w.nextTick+i, f)
	}
}

func (w *wheel) empty(tick int64, f func(*table.Counter)) {
	i := tick % int64(len(w.slots))
	list := w.slots[i]
	w.slots[i] = nil
	w.held -= len(list)
	for _, c := range list {
		f(c)
	}
}

// next returns when something is due, 0 if nothing is.
func (w *wheel) next() int64 {
	if w.held == 0 {
		return 0
	}
	for i := range int64(len(w.slots)) {
		if tick := w.nextTick + i; len(w.slots[tick%int64(len(w.slots))]) > 0 {
			return tick*w.tick + w.phase
		}
	}
	return 0
}
