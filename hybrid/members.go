package hybrid

import "math"

// members is the number of live nodes, this one included, that a node counts on.
//
// A higher number applies at once. A lower one applies after a heartbeat and a half, and is
// then the highest that was reported in that time: when Redis has lost the list of nodes,
// every live node enters itself again within one heartbeat, and not all nodes notice the
// loss at once.
//
// All times are on the clock that timers run on, in ns.
type members struct {
	count int64

	atLeast      int64 // the number does not fall below this, because nodes may be about to return,
	atLeastUntil int64 // before this time; math.MaxInt64: until Redis answers

	shrinkSince int64 // when a lower number was first reported; 0: none is pending
	shrinkTo    int64 // the highest number reported since
}

// beatsToReturn is how many heartbeats (or the longest pause between probes, if that is
// longer) the nodes are given to enter themselves again.
const beatsToReturn = 4

// hold keeps the number from falling before a time: after an outage, after Redis has lost
// the list of nodes, and at the start of a fleet of known size. Otherwise the first node to
// return would count itself as the only one, and would admit the whole limit if Redis
// became unreachable again.
func (m *members) hold(until int64) {
	m.atLeast, m.atLeastUntil = max(m.count, 1), until
}

// holdUntilAnswer is hold until Redis answers; see waitsForAnswer.
func (m *members) holdUntilAnswer() { m.hold(math.MaxInt64) }

// waitsForAnswer reports whether the number is held until Redis answers.
func (m *members) waitsForAnswer() bool { return m.atLeastUntil == math.MaxInt64 }

// held reports whether the number may not fall yet.
func (m *members) held(now int64) bool { return now < m.atLeastUntil }

// reported applies the number of live nodes that Redis has reported. It returns whether the
// count has changed.
func (m *members) reported(n, now, heartbeat int64) (changed bool) {
	if m.held(now) {
		n = max(n, m.atLeast)
	}
	switch {
	case n < 1:
		return false
	case n >= m.count:
		m.shrinkSince = 0
	case m.shrinkSince == 0:
		m.shrinkTo, m.shrinkSince = n, now
		return false
	case now-m.shrinkSince < heartbeat*3/2:
		m.shrinkTo = max(m.shrinkTo, n)
		return false
	default:
		n, m.shrinkSince = max(m.shrinkTo, n), 0
	}
	changed = n != m.count
	m.count = n
	return changed
}
