package local

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// With many keys a check waits for memory: for the line of the recents that tells
// where the counter is, and then for the counter. A slot is one cache line with all
// that such checks need as nearly all are, for one unit of a key with room for it or
// of one that is being refused, and the hash alone tells where it is. A counter that
// could go on answering briskly lends its state to a slot. Whoever locks the counter
// takes it back first, so that nobody else has to know.

const (
	// slotWays is how many slots a hash can be in: as many as a word has tags.
	slotWays = 8
	// slotsFirst and slotsMost bound the slots: 64 bytes each. Fewer would not begin
	// where cache lines do. A table for more keys than slotsFew has half as many: most
	// of its keys would find none anyway, and it is memory that so many keys cost.
	slotsFirst, slotsMost = 1 << 9, 1 << 17
	slotsFew              = 4 * slotsMost
	slotsInPage           = 64
	// slotLoad is how many slots there are for each counter, at the least: of 8 ways
	// 4 are taken then; 0.8 % of keys find none, and 1.6 % that another has their tag.
	slotLoad = 2
	// slotIdle is how long, in ns, a counter may stay in a slot unasked when there
	// is another that needs it.
	slotIdle = 1_000_000_000
	// refusalUnit is the unit, in ns, in which slots keep the end of a refusal, of
	// which they have 32 bits: it comes again after more than four years. No refusal
	// ends more than refusalMost of them ahead.
	refusalUnit = 1 << 25
	refusalMost = denyFor/refusalUnit + 1
	// askRefused is how often a counter that refuses, and could do so from a slot, is
	// asked all the same: once in so many checks, or in askVacant if a slot is vacant and
	// nobody is about to take it back.
	askRefused = 1 << askRefusedBits
	askVacant  = 1 << askVacantBits
	// These are the bits of a time that must be 0, after all of its bits have been mixed:
	// a clock may only ever show whole milliseconds.
	askRefusedBits, askVacantBits = 6, 3
)

// slot answers for a counter. It is one cache line. What is atomic is written under
// mu as well, but read without it where a refusal needs no lock.
type slot struct {
	mu     sync.Mutex // protects all below; taken after that of the counter
	left   uint16     // units that may be admitted
	taken  uint16     // units that were, as far as they are not counted yet; see countLocked
	season atomic.Uint32
	c      atomic.Pointer[Counter] // that has lent its state; nil: none
	hold   int64                   // of a funnel: what it held at last, in ticks, all of it pending. Of a window: until when it lends, ns
	last   int64                   // latest now seen
	ends   [2]atomic.Uint64
	label  atomic.Uint64
}

// lawsLast is for how long, in ns, the laws keep their numbers at the least.
const lawsLast = 1_000_000_000

// season is which slots may still answer: it turns, and none may, when what a unit
// weighs changes or the cache wants to hear who is in use. It has a cache line of its
// own, because every check reads it and others are written all the time.
type season struct {
	n atomic.Uint32
	_ [60]byte
}

func newSeason() *season {
	s := new(season)
	s.n.Store(1)
	return s
}

func (s *season) turn() { s.n.Add(1) }

// lodge is the slots of a table, and what they have in common.
type lodge struct {
	season  *season
	refresh int64 // ns after which an unused counter is as if it were new
	rows    atomic.Pointer[slotRows]
	most    int                             // slots there may be
	laws    [256]atomic.Pointer[limit.Rule] // those that slots refer to
	lawMu   sync.Mutex                      // for writing, and for the next
	// repealed is when the laws were last numbered anew.
	repealed int64

	admitted *[Sources]atomic.Int64 // units, by what they were admitted on; apart from what each check reads
	growing  sync.Mutex             // held while there are slots that nobody finds any more

	terms termsTable
	// handles is how many were made.
	handles atomic.Int64
	table   *Table // whose slots these are; nil: nobody's, see Slots
	groups  [pocketGroups]pocketGroup
}

// slotRows are the slots that there are for now, in rows of slotWays. Their tags are
// apart, a word for a row, because these stay in the processor's own cache: then one
// line of memory has to come in for a check, and none for a key that has no slot.
type slotRows struct {
	tags  []atomic.Uint64 // a byte for each slot: slotTag, maybe with tagRefused; 0: nobody has it. Another may have it no more, see vacate
	slots []slot
	mask  uint64
}

func newSlotRows(n int) *slotRows {
	r := &slotRows{tags: make([]atomic.Uint64, n/slotWays), slots: make([]slot, n), mask: uint64(n/slotWays - 1)}
	// The system gives out memory page by page when it is first written to, which takes
	// some 20 µs: here, not in a check.
	for i := 0; i < n; i += slotsInPage {
		r.slots[i].left = 0
	}
	return r
}

// slotTag returns the tag of a hash. It leaves the lowest bit to tagRefused, which says
// that the slot was last lent a refusal: nobody is going to write to it.
func slotTag(h uint64) uint64 { return max(h>>57, 1) << 1 }

const tagRefused = 1

func (l *lodge) init(link *Link, maxKeys int) {
	if l.most = slotsMost; maxKeys > slotsFew {
		l.most = slotsMost / 2
	}
	if link != nil {
		l.season, l.refresh = link.season, link.refresh
	} else {
		l.season, l.refresh = newSeason(), math.MaxInt64
	}
	l.admitted = new([Sources]atomic.Int64)
	l.rows.Store(newSlotRows(slotsFirst))
}

// find returns the slot that answers for this hash, by the looks of it, or nil. It has
// the slot come into the processor's cache and does not wait for it: reading a line that
// another processor has written, and then asking for it once more in order to write to
// it, would take twice as long.
func (l *lodge) find(h uint64) *slot {
	r := l.rows.Load()
	row := h >> 8 & r.mask
	tags := r.tags[row].Load()
	differ := tags&^(tagRefused*everyByte) ^ slotTag(h)*everyByte
	// The lowest of these is a byte without a difference; others may not be. Two slots of a
	// row have the same tag only when two counters have taken them at the same time: then
	// the second asks its counter until one of them goes.
	same := (differ - everyByte) &^ differ & topBits
	if same == 0 {
		return nil
	}
	at := uint64(bits.TrailingZeros64(same)) &^ 7
	s := &r.slots[row*slotWays+at/8]
	if tags>>at&tagRefused == 0 {
		fetchToWrite(unsafe.Pointer(s))
	} else {
		fetchToRead(unsafe.Pointer(s))
	}
	return s
}

// answerKey is answer for a key with this hash.
func (l *lodge) answerKey(s *slot, key string, h uint64, rule *limit.Rule, now int64) (allowed bool, src limit.Source, ok bool) {
	if len(key) <= inlineKey {
		return l.answer(s, signOf(key), rule, now)
	}
	c := s.tenant(key, h)
	if c == nil {
		return false, 0, false
	}
	return l.answerFor(s, c, rule, now)
}

// answer decides for one unit of the key of a sign from s. Unless ok, nothing has
// happened, and the counter has to be asked. Nearly all that ask find their own slot:
// so there is one look at it before it is locked, which leaves others' slots alone, and
// the rest is under the lock.
func (l *lodge) answer(s *slot, k sign, rule *limit.Rule, now int64) (allowed bool, src limit.Source, ok bool) {
	w := label(s.label.Load())
	if w.refusal() != 0 {
		src, ok = l.refuse(s, nil, k, rule, now)
		return false, src, ok
	}
	if !s.isOf(w, k) || !l.follows(w, rule) {
		return false, 0, false
	}
	s.mu.Lock()
	ok = label(s.label.Load()) == w && s.isOf(w, k) && l.inForce(w, s.season.Load(), rule) && s.admitLocked(rule, now, l.refresh)
	s.mu.Unlock()
	return ok, w.source(), ok
}

// answerFor is answer for the key of a counter.
func (l *lodge) answerFor(s *slot, c *Counter, rule *limit.Rule, now int64) (allowed bool, src limit.Source, ok bool) {
	w := label(s.label.Load())
	if w.refusal() != 0 {
		src, ok = l.refuse(s, c, sign{}, rule, now)
		return false, src, ok
	}
	if !s.isFor(c) || !l.follows(w, rule) {
		return false, 0, false
	}
	s.mu.Lock()
	ok = label(s.label.Load()) == w && s.isFor(c) && l.inForce(w, s.season.Load(), rule) && s.admitLocked(rule, now, l.refresh)
	s.mu.Unlock()
	return ok, w.source(), ok
}

// refuse refuses one unit of the key of a sign, or of its counter if that is known, if s
// does so. It takes no lock: two goroutines that are refused do not meet, as little as at
// the counter.
func (l *lodge) refuse(s *slot, c *Counter, k sign, rule *limit.Rule, now int64) (src limit.Source, ok bool) {
	w, season, ok := s.look(c, k)
	if !ok || w.refusal() == 0 || !l.inForce(w, season, rule) {
		return 0, false
	}
	left := w.refusal() - uint32(now/refusalUnit) // wraps
	return w.source(), left-1 < refusalMost
}

// vacate has the next ones who ask for a hash not look at a slot of which it has turned
// out that nobody has it.
func (l *lodge) vacate(s *slot, h uint64) {
	r := l.rows.Load()
	row := h >> 8 & r.mask
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c.Load() != nil {
		return
	}
	l.countLocked(s)
	for i := range uint64(slotWays) {
		if &r.slots[row*slotWays+i] == s {
			r.setTag(row, i*8, 0)
		}
	}
}

// inForce reports whether a slot with this label and season may answer under a rule.
// The season of all is looked at last: it has turned before another rule takes the place
// of one of the laws, and so it has when what a unit weighs has changed. A loan that is
// over has the season 0, which does not come for years, and no units.
func (l *lodge) inForce(w label, season uint32, rule *limit.Rule) bool {
	return l.follows(w, rule) && season == l.season.n.Load()
}

// follows reports whether a slot with this label goes by a rule.
func (l *lodge) follows(w label, rule *limit.Rule) bool { return l.laws[w.law()].Load() == rule }

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
	loan, ok := c.loanLocked(now)
	if !ok {
		return
	}
	if p != nil && p.borrowLocked(c, loan, season, now) {
		return
	}
	law, ok := l.lawOf(rule, now)
	if !ok {
		return
	}
	r := l.rows.Load()
	tag := slotTag(c.hash)
	if loan.refusal != 0 {
		tag |= tagRefused
	}
	s := r.takeLocked(c.hash, tag, season, now)
	if s == nil {
		return
	}
	defer s.mu.Unlock()
	if l.rows.Load() != r {
		return // nobody would find it there
	}
	l.countLocked(s)
	s.hold, s.last, s.left = loan.hold, c.last, loan.left
	s.c.Store(c)
	var k sign
	if c.keyBytes >= longKey {
		k = c.longSign()
	} else {
		k = signOf(c.Key())
	}
	s.ends[0].Store(k.first)
	s.ends[1].Store(k.last)
	s.label.Store(uint64(newLabel(loan.refusal, law, loan.source, k.rest)))
	s.season.Store(season)
	c.slot.Store(s)
	if loan.refusal == 0 {
		c.bookLoanLocked(int64(loan.left)) // what is left of them comes off again
		c.brisk = 0
	}
}

// wants reports whether c, which refuses unasked, is to be asked for one unit all the
// same: then it gets a slot, if there is one by now, and says that it is in use. Time
// tells whose turn it is: to count would be to write.
func (l *lodge) wants(c *Counter, n, now int64) bool {
	const golden = 0x9e3779b97f4a7c15
	turn := uint64(now)*golden + c.hash
	if turn>>(64-askVacantBits) != 0 || n != 1 || !lasts(c.denied.Load(), now) {
		return false
	}
	if s := c.slot.Load(); s != nil {
		return s.season.Load() != l.season.n.Load()
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

// takeLocked returns a free slot for a hash, locked and with its tag, or nil: the one
// that it had before, if it can, because to look at all of a row takes long. Who has
// one and was not asked for long, or not since the season turned, gives it up. In a
// row no two who are asked have the same tag: only one of them would be found.
func (r *slotRows) takeLocked(h, tag uint64, season uint32, now int64) *slot {
	row := h >> 8 & r.mask
	tags := r.tags[row].Load()
	tagOf := func(i uint64) uint64 { return tags >> (i * 8) & 0xff }
	take := func(i uint64, anybody bool) *slot {
		s := &r.slots[row*slotWays+i]
		if !s.mu.TryLock() {
			return nil // it is in use
		}
		if s.c.Load() == nil || anybody && s.freeLocked(season, now) {
			r.setTag(row, i*8, tag)
			return s
		}
		s.mu.Unlock()
		return nil
	}
	for i := range uint64(slotWays) {
		if tagOf(i)&^tagRefused == slotTag(h) {
			return take(i, true)
		}
	}
	for _, step := range [3]func(i uint64) bool{
		func(i uint64) bool { return tagOf(i) == 0 },
		func(i uint64) bool { return r.slots[row*slotWays+i].season.Load() == 0 },
		nil, // any, if need be
	} {
		for i := range uint64(slotWays) {
			if step == nil || step(i) {
				if s := take(i, step == nil); s != nil {
					return s
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

// freeLocked sends away who has s, if it can do without.
func (s *slot) freeLocked(season uint32, now int64) bool {
	d := s.c.Load()
	if s.season.Load() == season && now-s.last <= slotIdle {
		return false
	}
	// Not Lock: it comes before that of the slot. Who has it may want the slot.
	if !d.mu.TryLock() {
		return false
	}
	s.returnLocked(d)
	d.mu.Unlock()
	return true
}

// lawOf returns the number of a rule among the laws. When they are all taken, none
// is valid any more and they are numbered anew, one by one.
func (l *lodge) lawOf(rule *limit.Rule, now int64) (n uint8, ok bool) {
	for i := range l.laws {
		switch l.laws[i].Load() {
		case rule:
			return uint8(i), true
		case nil:
			return l.enact(rule, now)
		}
	}
	return l.enact(rule, now)
}

func (l *lodge) enact(rule *limit.Rule, now int64) (n uint8, ok bool) {
	l.lawMu.Lock()
	defer l.lawMu.Unlock()
	for i := range l.laws {
		switch l.laws[i].Load() {
		case nil:
			l.laws[i].Store(rule)
			return uint8(i), true
		case rule:
			return uint8(i), true
		}
	}
	if now-l.repealed < lawsLast && l.repealed != 0 {
		return 0, false // somebody makes a rule for each check
	}
	for i := range l.laws {
		l.laws[i].Store(nil)
	}
	// After that, so that who finds a number in the new season finds a new one; and
	// before any is given to another rule.
	l.season.turn()
	l.repealed = now
	return 0, false // the season that is known to the caller is over
}

// crowded reports whether there are more counters than there should be for so many
// slots.
func (l *lodge) crowded(live int64) bool {
	n := len(l.rows.Load().slots)
	return live*slotLoad > int64(n) && n < l.most
}

// grow makes room for so many counters. Those that have a slot take back what they
// have lent: nobody would find them there.
func (l *lodge) grow(live int64) {
	l.growing.Lock()
	defer l.growing.Unlock()
	was := l.rows.Load()
	n := len(was.slots)
	for n < l.most && live*slotLoad > int64(n) {
		n *= 2
	}
	if n == len(was.slots) {
		return
	}
	l.rows.Store(newSlotRows(n))
	for i := range was.slots {
		s := &was.slots[i]
		s.mu.Lock()
		c := s.c.Load()
		s.mu.Unlock()
		if c != nil {
			c.lock()
			c.mu.Unlock()
		}
		s.mu.Lock()
		l.countLocked(s)
		s.mu.Unlock()
	}
}
