package local

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Who gets a slot, and who has to leave it.

// lodge is the slots of a table, and what they have in common.
type lodge struct {
	season  *season
	refresh int64 // ns after which an unused counter is as if it were new
	rows    atomic.Pointer[slotRows]
	most    int // slots there may be
	terms   termsTable

	admitted *[Sources]atomic.Int64 // units, by what they were admitted on; apart from what each check reads
	growing  sync.Mutex             // held while there are slots that nobody finds any more, and while middles are made
	middling atomic.Bool            // there was a key that has a middle

	table   *Table       // whose slots these are; nil: nobody's, see Slots
	handles atomic.Int64 // how many of its keys were bound
	groups  [pocketGroups]pocketGroup
}

func (l *lodge) init(link *Link, maxKeys int) {
	if l.most = slotsMost; maxKeys > slotsFew {
		l.most = slotsMost / 2
	}
	if link != nil {
		l.season, l.refresh = link.season, int64(link.pace.MaxLag)
	} else {
		l.season, l.refresh = newSeason(), math.MaxInt64
	}
	l.admitted = new([Sources]atomic.Int64)
	l.rows.Store(newSlotRows(slotsFirst))
}

// lend lets c answer from the pocket of who asks, if there is one, or from a slot, if it is
// steady and there is one to be had. The season was read before the epoch, and before all else that may end it.
func (l *lodge) lend(c *Counter, p *pocket, rule *limit.Rule, season uint32, epoch uint8, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot.Load() != nil || c.lentTo() != nil || c.epoch != epoch || c.law.Load() != rule {
		return
	}
	if part := c.part(); part != nil && int32(part.mode.Load()) != c.modeBits.Load() {
		return
	}
	loan, ok := c.loanLocked()
	if !ok {
		return
	}
	t := l.termsOf(rule, loan.source, season, c.last)
	if t == nil {
		return
	}
	w, ok := t.word(c, loan)
	if !ok || p != nil && p.borrowLocked(c, t, w, now) {
		return
	}
	if loan.refusal == 0 || loan.refusal-now >= refusalLeast {
		l.lodgeLocked(c, t, w, now)
	}
}

// lodgeLocked lends what c, which is locked, has to lend to a slot, if there is one.
func (l *lodge) lodgeLocked(c *Counter, t *terms, w uint64, now int64) {
	r := l.rows.Load()
	if r.lacksMiddle(c.Key()) {
		return // they are being made
	}
	d := r.takeLocked(c.hash, refuses(w), t.season, now)
	if d == nil {
		return
	}
	defer d.mu.Unlock()
	if l.rows.Load() != r {
		return // nobody would find it there
	}
	l.countLocked(d)
	d.c.Store(c)
	d.terms.Store(t)
	d.loans++
	d.lent = unitsOf(w)
	var m middle
	k, s := c.sign(&m), d.slot
	if k.middle != nil {
		i, _ := r.index(s)
		(*r.middles.Load())[i].put(k.middle)
	}
	s.ends[0].Store(k.first)
	s.ends[1].Store(k.last)
	s.label.Store(uint64(newLabel(t.number, k.rest)))
	w |= uint64(d.loans) & numberMask
	d.seen, d.seenAt = w, now
	s.word.Store(w)
	c.slot.Store(d)
	if !refuses(w) {
		c.bookLoanLocked(int64(d.lent)) // what is left of them comes off again
		c.brisk = 0
	}
}

// returnLocked gives c back what it has lent to the slot of d. Both are locked.
func (d *tenancy) returnLocked(c *Counter) {
	if w := d.slot.word.Swap(0); !refuses(w) {
		d.taken += d.lent - unitsOf(w) - d.counted
		c.takeBackLocked(d.terms.Load(), w, d.lent)
	}
	d.lent, d.counted = 0, 0
	d.c.Store(nil)
	c.slot.Store(nil)
}

// wants reports whether c, which refuses unasked, is to be asked for one unit all the
// same: then it gets a slot, if there is one by now, and says that it is in use. Time
// tells whose turn it is: to count would be to write.
func (l *lodge) wants(c *Counter, n, now int64) bool {
	const golden = 0x9e3779b97f4a7c15
	turn := uint64(now)*golden + c.hash
	if turn>>(64-askVacantBits) != 0 || n != 1 || c.denied.Load()-now < refusalLeast {
		return false
	}
	if d := c.slot.Load(); d != nil {
		return d.terms.Load().over(l.season.n.Load(), now)
	}
	if !hasRoomFor(c.rule()) {
		return false // it would be in vain
	}
	return turn>>(64-askRefusedBits) == 0 || c.keepsLoans() && l.rows.Load().vacant(c.hash)
}

// keepsLoans reports whether nobody is told of c who would take back, a moment later,
// what it has lent.
func (c *Counter) keepsLoans() bool { return c.part() == nil || modeDegraded(c.mode()) }

// vacant reports whether there is a slot for a hash that nobody has, as far as tags tell.
func (r *slotRows) vacant(h uint64) bool {
	tags := r.tags[h>>8&r.mask].Load()
	differ := tags&^(tagRefused*everyByte) ^ slotTag(h)*everyByte
	return hasZero(tags) && !hasZero(differ)
}

// hasZero reports whether a byte of w is 0.
func hasZero(w uint64) bool { return (w-everyByte)&^w&topBits != 0 }

// takeLocked returns what a free slot for a hash has besides, locked and with its tag, or
// nil: that which it had before, if it can, because to look at all of a row takes long. Who
// has one and was not asked for long, or not since its terms ended, gives it up. In a
// row no two who are asked have the same tag: only one of them would be found.
func (r *slotRows) takeLocked(h uint64, refuses bool, season uint32, now int64) *tenancy {
	row := h >> 8 & r.mask
	tags := r.tags[row].Load()
	tagOf := func(i uint64) uint64 { return tags >> (i * 8) & 0xff }
	take := func(i uint64, anybody bool) *tenancy {
		d := &r.tenants[row*slotWays+i]
		if !d.mu.TryLock() {
			return nil // it is in use
		}
		if d.c.Load() == nil || anybody && d.freeLocked(season, now) {
			tag := slotTag(h)
			if refuses {
				tag |= tagRefused
			}
			r.setTag(row, i*8, tag)
			return d
		}
		d.mu.Unlock()
		return nil
	}
	for i := range uint64(slotWays) {
		if tagOf(i)&^tagRefused == slotTag(h) {
			return take(i, true)
		}
	}
	for _, step := range [3]func(i uint64) bool{
		func(i uint64) bool { return tagOf(i) == 0 },
		func(i uint64) bool { return r.tenants[row*slotWays+i].c.Load() == nil },
		nil, // any, if need be
	} {
		for n := range uint64(slotWays) {
			i := n
			if len(r.slots) <= slotsApart {
				i = n*2%slotWays + n*2/slotWays
			}
			if step == nil || step(i) {
				if d := take(i, step == nil); d != nil {
					return d
				}
			}
		}
	}
	return nil
}

func (r *slotRows) setTag(row, shift, tag uint64) {
	for {
		was := r.tags[row].Load()
		is := was&^(0xff<<shift) | tag<<shift
		if was == is || r.tags[row].CompareAndSwap(was, is) {
			return
		}
	}
}

// freeLocked sends away who has the slot of d, if it can do without. Whether it was asked
// shows when somebody looks for the second time. A refusal does not show it: that may have
// to go after slotIdle.
func (d *tenancy) freeLocked(season uint32, now int64) bool {
	c, w := d.c.Load(), d.slot.word.Load()
	if d.terms.Load().over(season, now) {
		return d.evictLocked(c)
	}
	if w != d.seen {
		d.seen, d.seenAt = w, now
		return false
	}
	return now-d.seenAt > slotIdle && d.evictLocked(c)
}

func (d *tenancy) evictLocked(c *Counter) bool {
	// Not Lock: it comes before that of the slot. Who has it may want the slot.
	if !c.mu.TryLock() {
		return false
	}
	d.returnLocked(c)
	c.mu.Unlock()
	return true
}

// crowded reports whether there are more counters than there should be for so many
// slots.
func (l *lodge) crowded(live int64) bool {
	n := len(l.rows.Load().slots)
	return live*slotLoad > int64(n) && n < l.most
}

// comesWithMiddle notes it if a new key has a middle, and reports whether there is to be
// one for it.
func (l *lodge) comesWithMiddle(key string) bool {
	lacks := l.rows.Load().lacksMiddle(key)
	if lacks {
		l.middling.Store(true)
	}
	return lacks
}

// grow makes room for so many counters, and for their middles if they have any: here,
// as a check would take long for that. Those that have a slot take back what they have
// lent: nobody would find them there.
func (l *lodge) grow(live int64) {
	l.growing.Lock()
	defer l.growing.Unlock()
	was := l.rows.Load()
	n := len(was.slots)
	for n < l.most && live*slotLoad > int64(n) {
		n *= 2
	}
	middling := l.middling.Load()
	if n == len(was.slots) {
		if middling {
			was.bringMiddles()
		}
		return
	}
	is := newSlotRows(n)
	if middling {
		is.bringMiddles()
	}
	l.rows.Store(is)
	for i := range was.tenants {
		d := &was.tenants[i]
		d.mu.Lock() // who lends at this moment has not seen that there are others now
		c := d.c.Load()
		d.mu.Unlock()
		if c != nil {
			c.lock()
			c.mu.Unlock()
		}
		d.mu.Lock()
		l.countLocked(d)
		d.mu.Unlock()
	}
}
