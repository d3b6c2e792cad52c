package counter

import "time"

// This file follows the wall clock. It decides when a period of a calendar begins as long as Redis' clock is
// not known: in counters without a link, and until Redis has answered. The clock of the checks is monotonic.
// It does not move when the wall clock is set, and may stand still while the machine is suspended.
//
// All other limits count by the clock of the checks alone, so that nobody frees them by setting a clock.

// wallError is the largest change, in ns, that is taken for an error: a thread may pause between its readings
// of the two clocks.
const wallError = int64(100 * time.Millisecond)

// hasMoved reports whether the wall clock was set, or the clock of the checks stood still.
func hasMoved(was, is int64) bool { return is-was > wallError || was-is > wallError }

// SetWall sets by how many ns the wall clock is ahead of the clock of the checks, for counters without a link.
func (g *Group) SetWall(ns int64) {
	if hasMoved(g.wall.Load(), ns) {
		g.wall.Store(ns)
		g.epoch.n.Add(1) // must be last: a counter that reads the new epoch must see the new time
	}
}

// SetWall sets by how many ns the wall clock is ahead of the clock of the checks. It is the guess for Redis'
// clock until a shard has answered.
func (l *Link) SetWall(ns int64) {
	if !hasMoved(l.wall.Load(), ns) {
		return
	}
	l.wall.Store(ns)
	for i := range l.parts {
		l.parts[i].epoch.n.Add(1) // must be last, see Group.SetWall
	}
}

// guess returns by how much, in ns, Redis' clock may be ahead of ours for a shard that has not answered.
func (l *Link) guess() int64 {
	if p := l.Part(-1); p.slack.Load() != unknown {
		return p.offset.Load()
	}
	return l.wall.Load()
}

// wallLocked returns by how much, in ns, the clock that c counts by is ahead of ours if c has no link.
func (c *Counter) wallLocked() int64 {
	if c.rule().Calendar == nil {
		return 0
	}
	return c.group.wall.Load()
}
