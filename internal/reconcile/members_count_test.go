package reconcile

import (
	"math"
	"testing"
)

func TestMembers(t *testing.T) {
	const beat = 1000
	m := members{count: 1}
	report := func(what string, now, n int64, changed bool, want int64) {
		t.Helper()
		if got := m.reported(n, now, beat); got != changed || m.count != want {
			t.Errorf("%s: changed %v, %d nodes; want %v, %d", what, got, m.count, changed, want)
		}
	}
	report("a higher number", 1, 10, true, 10)
	report("none", 2, 0, false, 10)
	report("a lower number", 3, 2, false, 10)
	report("a less low one", 1000, 6, false, 10)
	report("a lower one, a heartbeat and a half after the first", 1503, 3, true, 6)
	report("a lower number", 1600, 5, false, 6)
	report("the same number as before", 1700, 6, false, 6)
	report("a lower number, of which the first was contradicted", 3200, 5, false, 6)
	m.holdUntilAnswer()
	if !m.held(math.MaxInt64-1) || !m.waitsForAnswer() {
		t.Error("it is not held until Redis answers")
	}
	report("a lower number while it is held", 9000, 1, false, 6)
	m.hold(10_000)
	report("a lower number after that", 10_000, 1, false, 6)
	report("and a heartbeat and a half later", 11_500, 1, true, 1)
}

// The number is held at what it is when a server goes down, also if it was held at a lower number before: at the
// start of a fleet of known size.
func TestMembersAreHeldWhenAServerGoesDown(t *testing.T) {
	c := awake(t, 4, 1)
	c.expectNodes(2)
	c.members.reported(5, c.now, c.cfg.HeartbeatInterval)
	c.setHealth(c.shards[0].server, down)
	if c.members.reported(1, c.now, c.cfg.HeartbeatInterval); c.members.atLeast != 5 {
		t.Errorf("at least %d nodes, want 5", c.members.atLeast)
	}
}
