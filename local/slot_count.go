package local

// countLocked counts what has been admitted from the slot of d since that was done last. A
// slot counts by itself in between, by what is left of its loan: to count each
// decision elsewhere took a sixth of a check. It is done before a slot that has been
// in use gets another loan or loses its tag, so that all that have something to tell have
// a tag.
func (l *lodge) countLocked(d *tenancy) {
	n := d.taken
	d.taken = 0
	if w := d.slot.word.Load(); d.c.Load() != nil && !refuses(w) {
		more := d.lent - unitsOf(w) - d.counted
		d.counted += more
		n += more
	}
	if n > 0 {
		l.admitted[d.terms.Load().source].Add(int64(n))
	}
}

// sums returns how many units slots and pockets have admitted so far, by source.
func (l *lodge) sums() (n [Sources]int64) {
	l.growing.Lock()
	defer l.growing.Unlock()
	r := l.rows.Load()
	for i := range r.tenants {
		if r.tags[i/slotWays].Load()>>(i%slotWays*8)&0xff == 0 {
			continue
		}
		d := &r.tenants[i]
		d.mu.Lock()
		l.countLocked(d)
		d.mu.Unlock()
	}
	for i := range n {
		n[i] = l.admitted[i].Load()
	}
	for i := range l.groups {
		l.groups[i].add(&n)
	}
	return n
}
