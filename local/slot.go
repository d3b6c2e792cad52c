package local

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// With many keys a check waits for memory: for the line of the recents that tells
// where the counter is, and then for the counter. A slot is half a cache line with all
// that such checks need as nearly all are, for one unit of a key with room for it or
// of one that is being refused, and the hash alone tells where it is. A counter that
// could go on answering briskly lends its state to a slot, as it lends it to a pocket.
// Whoever locks the counter takes it back first, so that nobody else has to know.

const (
	// slotWays is how many slots a hash can be in: as many as a word has tags.
	slotWays = 8
	// slotsFirst and slotsMost bound the slots: 32 bytes each, 64 for what they have
	// besides, and 32 for the middle of a key if any has one. A table for more keys than
	// slotsFew has half as many: most of its keys would find none anyway, and it is memory
	// that so many keys cost.
	slotsFirst, slotsMost = 1 << 9, 1 << 17
	slotsFew              = 4 * slotsMost
	slotsInPage           = 128
	// slotsApart is how many slots, at the most, have those of a row taken every other one
	// first: as long as all of them are in the processor's cache, it matters more that two
	// processors do not ask for two keys of one line. Of more they are taken side by side,
	// because that makes fewer lines.
	slotsApart = 1 << 14
	// slotLoad is how many slots there are for each counter, at the least: of 8 ways
	// 4 are taken then; 0.8 % of keys find none, and 1.6 % that another has their tag.
	slotLoad = 2
	// slotIdle is how long, in ns, a counter may stay in a slot unasked when there
	// is another that needs it.
	slotIdle = 1_000_000_000
	// refusalLeast is how long, in ns, a refusal lasts at the least for which a slot is taken.
	refusalLeast = 1 << 22
	// askRefused is how often a counter that refuses, and could do so from a slot, is
	// asked all the same: once in so many checks, or in askVacant if a slot is vacant and
	// nobody is about to take it back.
	askRefused = 1 << askRefusedBits
	askVacant  = 1 << askVacantBits
	// These are the bits of a time that must be 0, after all of its bits have been mixed:
	// a clock may only ever show whole milliseconds.
	askRefusedBits, askVacantBits = 6, 3
)

// slot answers for a counter, without a lock: its word is like that of a [pocket], and all
// else belongs to the loan of the word if that is still the same afterwards. Numbers of
// loans repeat: 16 of them that begin and end while a check stands between its look and its
// swap could leave the same word, if they do so within a step of the clock.
type slot struct {
	word  atomic.Uint64
	ends  [2]atomic.Uint64
	label atomic.Uint64
}

// tenancy is what a slot has besides: what only those need who lend and take back.
type tenancy struct {
	mu    sync.Mutex              // protects the rest; c and terms are read without it. Taken after that of the counter
	c     atomic.Pointer[Counter] // that has lent its state; nil: none. Written under its lock, too
	terms atomic.Pointer[terms]   // of the loan; the latest one
	slot  *slot                   // immutable
	// seen is the word when somebody looked whether it is in use, at seenAt.
	seen    uint64
	seenAt  int64
	lent    uint32 // units
	counted uint32 // of these, as many are admitted and counted
	taken   uint32 // units of loans before that were admitted and are not counted; see countLocked
	loans   uint8  // how many there were, which wraps
}

// isVacant reports whether nobody has s, by the looks of it.
func (s *slot) isVacant() bool { return s.word.Load() == 0 }

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

// slotRows are the slots that there are for now, in rows of slotWays. Their tags are
// apart, a word for a row, because these stay in the processor's own cache: then one
// line of memory has to come in for a check, and none for a key that has no slot.
type slotRows struct {
	tags    []atomic.Uint64 // a byte for each slot: slotTag, maybe with tagRefused; 0: nobody has it. Another may have it no more, see vacate
	slots   []slot
	tenants []tenancy
	middles atomic.Pointer[[]slotMiddle] // of as many slots; nil: nobody has needed one
	mask    uint64
}

func newSlotRows(n int) *slotRows {
	r := &slotRows{tags: make([]atomic.Uint64, n/slotWays), slots: make([]slot, n), tenants: make([]tenancy, n), mask: uint64(n/slotWays - 1)}
	// Both loops write to memory, too: the system gives it out page by page when it is first
	// written to, which takes some 20 µs: here, not in a check.
	for i := range r.tenants {
		r.tenants[i].slot = &r.slots[i]
	}
	for i := 0; i < n; i += slotsInPage {
		r.slots[i].word.Store(0)
	}
	return r
}

// slotTag returns the tag of a hash. It leaves the lowest bit to tagRefused, which says
// that the slot was last lent a refusal: nobody is going to write to it.
func slotTag(h uint64) uint64 { return max(h>>57, 1) << 1 }

const tagRefused = 1

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

// index returns which of the slots s is, ok if it is one of them.
func (r *slotRows) index(s *slot) (i uint64, ok bool) {
	i = uint64(uintptr(unsafe.Pointer(s))-uintptr(unsafe.Pointer(&r.slots[0]))) / uint64(unsafe.Sizeof(slot{}))
	return i, i < uint64(len(r.slots))
}

// answerKey is answer for a key with this hash.
func (l *lodge) answerKey(s *slot, key string, h uint64, rule *limit.Rule, now int64) (allowed bool, src limit.Source, ok bool) {
	if len(key) <= inlineKey {
		return l.answer(s, signOf(key), rule, now)
	}
	var m middle
	k, ok := l.signOf(s, key, h, &m)
	if !ok {
		return false, 0, false
	}
	return l.answer(s, k, rule, now)
}

// answer decides for one unit of the key of a sign from s. Unless ok, nothing has
// happened, and the counter has to be asked.
func (l *lodge) answer(s *slot, k sign, rule *limit.Rule, now int64) (allowed bool, src limit.Source, ok bool) {
	for {
		w := s.word.Load()
		t := l.termsFrom(s, k, rule)
		if t == nil {
			return false, 0, false
		}
		if refuses(w) {
			return false, t.source, t.refuses(w, now) && s.word.Load() == w
		}
		is, _, v := t.decide(w, now)
		if v == Unanswered {
			return false, 0, false
		}
		if s.word.CompareAndSwap(w, is) {
			return true, t.source, true
		}
	}
}

// termsFrom returns the terms of the loan of s, if it is of the key of a sign and by a rule,
// or nil.
func (l *lodge) termsFrom(s *slot, k sign, rule *limit.Rule) *terms {
	w := label(s.label.Load())
	if w.rest() != k.rest || s.ends[1].Load() != k.last || s.ends[0].Load() != k.first {
		return nil
	}
	if k.middle != nil && !l.rows.Load().middleOf(s).is(k.middle) {
		return nil
	}
	t := l.terms.numbered(w.terms())
	if t == nil || t.rule != rule {
		return nil
	}
	return t
}

// vacate has the next ones who ask for a hash not look at a slot of which it has turned
// out that nobody has it.
func (l *lodge) vacate(s *slot) {
	r := l.rows.Load()
	i, ok := r.index(s)
	if !ok {
		return
	}
	d := &r.tenants[i]
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c.Load() == nil {
		l.countLocked(d)
		r.setTag(i/slotWays, i%slotWays*8, 0)
	}
}
