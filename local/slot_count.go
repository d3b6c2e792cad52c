package local

// countLocked counts what has been admitted from s since that was done last. A slot
// counts by itself in between, under the lock that it needs anyway: to count each
// decision elsewhere took a sixth of a check. It is done before a slot that has been
// in use gets another loan or loses its tag, so that no slot has to count further than
// a loan goes, and all that have something to tell have a tag.
func (l *lodge) countLocked(s *slot) {
	if s.taken > 0 {
		l.admitted[label(s.label.Load()).source()].Add(int64(s.taken))
		s.taken = 0
	}
}

// sums returns how many units slots and pockets have admitted so far, by source.
func (l *lodge) sums() (n [Sources]int64) {
	l.growing.Lock()
	defer l.growing.Unlock()
	r := l.rows.Load()
	for i := range r.slots {
		if r.tags[i/slotWays].Load()>>(i%slotWays*8)&0xff == 0 {
			continue
		}
		s := &r.slots[i]
		s.mu.Lock()
		l.countLocked(s)
		s.mu.Unlock()
	}
	for i := range n {
		n[i] = l.admitted[i].Load()
	}
	for i := range l.groups {
		l.groups[i].add(&n)
	}
	return n
}
