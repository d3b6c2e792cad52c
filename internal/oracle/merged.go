package oracle

// merged is when a leaky bucket in Redis is empty at the latest, by the rule that
// reports are merged by: units are added to that time, also those that come
// late, but it is never less than what the reporting node's units alone make.
type merged struct {
	empty float64 // ns
	never float64 // the same, had the key never been reset
	back  int64   // Redis' clock was set back by so much, and was not put right
}

// book adds units that make a level by themselves.
func (m *merged) book(at int64, units, level, leak float64) {
	m.empty = max(m.empty+units/leak, float64(at)+level/leak)
	m.never = max(m.never+units/leak, float64(at)+level/leak)
}

// raise has it be empty no earlier than that.
func (m *merged) raise(empty float64) {
	m.empty, m.never = max(m.empty, empty), max(m.never, empty)
}

// late adds a delay.
func (m *merged) late(d int64) {
	m.empty += float64(d)
	m.never += float64(d)
}

// reset sets the leaky bucket to a number of units.
func (m *merged) reset(at int64, units, leak float64) {
	m.empty = float64(at) + units/leak
	m.never = max(m.never, m.empty)
}

// jump has Redis' clock jump. What is empty ahead of time by a clock that jumps
// ahead may be told again by nodes that have not heard of it: only what was set
// back before is taken off.
func (m *merged) jump(d int64) {
	if d < 0 {
		m.back -= d
		m.late(-d)
		return
	}
	d = min(d, m.back)
	m.back -= d
	m.late(-d)
}
