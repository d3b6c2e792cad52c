package reconcile

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// drain takes the counters that checks have put into the link's queues into those of the machine.
func (c *Machine) drain() {
	c.link.Drain(func(k *counter.Counter, urgent bool) {
		c.activeAt = c.now
		if urgent {
			c.hasten(k, false)
		} else {
			c.enqueue(k)
		}
	})
}

// hasten queues a counter whose report is urgent, in its shard. fresh: its pending units were
// admitted after a flight had left.
func (c *Machine) hasten(k *counter.Counter, fresh bool) {
	s, u := &c.shards[k.Shard()], k.Urgency()
	s.urgent.put(k, u, c.now, s.filledAt, fresh)
	at := max(c.now, s.filledAt+linger, c.now+u.Until-c.local)
	if s.urgentAt == 0 || at < s.urgentAt {
		s.urgentAt = at
	}
}

// enqueue queues a counter whose report is not urgent, in the wheel until it is due.
func (c *Machine) enqueue(k *counter.Counter) {
	// The view of a key that refuses may be due long after a lag, but a unit that it admits is due
	// within a lag. So it stays in the wheel for a lag at most. If it then has no unit, it leaves the
	// wheel until its next check; for the exception see look.
	c.wheel.add(k, c.now+min(max(k.Due(c.local), c.local)-c.local, max(k.Lag(), c.wheel.tick)))
}

// look handles a counter that the wheel has held for a lag at most. If it refuses because of a notice,
// and is not due, it goes back into the wheel: Redis must be asked for it even without another check.
func (c *Machine) look(k *counter.Counter) {
	if k.HasNotice() && k.Due(c.local) > c.local+c.wheel.tick {
		c.enqueue(k)
		return
	}
	c.ready(k)
}

// ready moves a counter that is due from the wheel into the queue of its shard.
func (c *Machine) ready(k *counter.Counter) {
	s := &c.shards[k.Shard()]
	if len(s.normal) >= max(s.prune, minPrune) {
		s.normal = slices.DeleteFunc(s.normal, func(q queued) bool { return q.c.Dropped() })
		s.prune = 2 * len(s.normal)
	}
	s.normal = append(s.normal, queued{k, c.now})
	if s.normalAt == 0 {
		s.normalAt = c.now
	}
}

// refreshAll queues every live counter, including those that have nothing to report.
func (c *Machine) refreshAll() {
	c.each(func(k *counter.Counter) bool {
		if k.Refresh() {
			c.enqueue(k)
		}
		return true
	})
}

// wheel is a timing wheel: it holds the counters that report later, by when they do, so
// that those that are due at about the same time are sent together. Its slots are one tick
// apart, and are reused in turn.
type wheel struct {
	tick     int64                // ns
	phase    int64                // offset of the ticks, so that nodes do not report in step
	slots    [][]*counter.Counter // by tick modulo the number of slots
	nextTick int64                // the slot of this tick is due next
	held     int                  // counters in all slots
}

// mostSlots is the upper bound of the slots of a wheel.
const mostSlots = 1024

// newWheel returns a wheel in which a counter waits for at most the time most. All arguments
// are in ns.
func newWheel(tick, most, phase int64) *wheel {
	tick = max(tick, most/(mostSlots-2))
	return &wheel{tick: tick, phase: phase % tick, slots: make([][]*counter.Counter, most/tick+2)}
}

// at returns the tick of a time.
func (w *wheel) at(now int64) int64 { return (now - w.phase) / w.tick }

// after returns the time of the next tick after now.
func (w *wheel) after(now int64) int64 { return (w.at(now)+1)*w.tick + w.phase }

// add holds c until a time, or for as long as the wheel can.
func (w *wheel) add(c *counter.Counter, at int64) {
	tick := min(max(w.at(at), w.nextTick), w.nextTick+int64(len(w.slots))-1)
	i := tick % int64(len(w.slots))
	w.slots[i] = append(w.slots[i], c)
	w.held++
}

// due calls f for each counter that is due by now, and removes them.
func (w *wheel) due(now int64, f func(*counter.Counter)) {
	to := w.at(now)
	for n := 0; n < len(w.slots) && w.nextTick <= to; n++ {
		w.empty(w.nextTick, f)
		w.nextTick++
	}
	w.nextTick = max(w.nextTick, to+1)
}

// all calls f for each counter, and removes them.
func (w *wheel) all(f func(*counter.Counter)) {
	for i := range int64(len(w.slots)) {
		w.empty(w.nextTick+i, f)
	}
}

// empty calls f for each counter in the slot of a tick, and removes them.
func (w *wheel) empty(tick int64, f func(*counter.Counter)) {
	i := tick % int64(len(w.slots))
	list := w.slots[i]
	w.slots[i] = nil
	w.held -= len(list)
	for _, c := range list {
		f(c)
	}
}

// next returns when the next counter is due, 0 if there is none.
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
