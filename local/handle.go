package local

import (
	"unsafe"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Handle is a key of a [Table] under a rule, with its counter at hand: a check
// needs no look-up as long as that counter lives, and one when it has been
// forgotten or replaced. It keeps the counter's memory, not its life. Methods but
// Bind and By are safe for concurrent use. The zero Handle is not bound.
type Handle struct{ pocket }

// Bind makes h, once, the handle of a key. It creates no counter yet, and keeps the key.
// Without a table h only knows its key and rule, see Bound.
func (h *Handle) Bind(t *Table, key string, rule *limit.Rule) {
	h.purse = &purse{key: key, rule: rule}
	if len(key) <= inlineKey {
		h.sign = signOf(key)
	} else if hasMiddle(key) {
		h.sign = middleSign(key, new(middle))
	}
	if t != nil {
		h.lodge = &t.lodge
	}
}

// By has h answer by itself, at the time that a clock shows: see Answer, which is to be
// given that clock. It does not under a clock that may go back, nor by a funnel that takes
// so long to run empty that its times have no room in a word, by which no slot does either:
// more than 39 hours, if what a unit takes is an odd number of ns; if that is no whole
// number, as many times sooner as it takes to make it one (see [limit.Rule.Ticks]).
func (h *Handle) By(c clock.Clock) {
	h.steady = h.Bound() && clock.Steady(c)
}

// Bound reports whether h can be asked.
func (h *Handle) Bound() bool { return h.purse != nil && h.lodge != nil }

// Key returns the key that h was bound to.
func (h *Handle) Key() string {
	if h.purse == nil {
		return ""
	}
	return h.key
}

// Rule returns the rule that h was bound to.
func (h *Handle) Rule() *limit.Rule {
	if h.purse == nil {
		return nil
	}
	return h.rule
}

// handlesApart is how many handles of a table should not share cache lines.
const handlesApart = 1 << 10

// Apart returns a new K, which begins with a Handle and takes half a cache line. It has a
// line of its own if it is among the first of t, which may be nil. As long as there are few,
// it is more likely that two processors ask for two of them than that there is no room in
// the processor's cache.
func Apart[K any](t *Table) *K {
	if t == nil || t.lodge.handles.Add(1) > handlesApart {
		return new(K)
	}
	return &new(struct {
		k K
		_ [32]byte
	}).k
}

// Answer decides for one unit if what its counter has lent to h suffices for that: then
// an admitted one is among those that [Table.Admitted] returns. Else AllowBy has to be asked.
func (h *Handle) Answer(clock clock.Clock) (v Verdict, src limit.Source) {
	return h.pocket.answer(clock)
}

// AllowBy is [Table.AllowBy].
func (h *Handle) AllowBy(clock clock.Clock, n int64) (allowed bool, src limit.Source, counted bool) {
	c, s := h.c.Load(), h.slot.Load()
	if c == nil || s == nil || n != 1 {
		return h.allow(nil, n, int64(clock.Now()))
	}
	if h.refused.Load() {
		fetchToRead(unsafe.Pointer(s))
	} else {
		fetchToWrite(unsafe.Pointer(s))
	}
	now := int64(clock.Now())
	if h.steady && trial(h.tried.Load()).over(now) {
		return h.allow(nil, n, now)
	}
	allowed, src, ok := h.askSlot(s, c, now)
	if !ok {
		return h.allow(s, n, now)
	}
	return allowed, src, allowed
}

// Allow is [Table.Allow].
func (h *Handle) Allow(n, now int64) (bool, limit.Source) {
	allowed, src, _ := h.allow(nil, n, now)
	return allowed, src
}

// allow is Allow when a slot, if any, has been asked in vain.
func (h *Handle) allow(asked *slot, n, now int64) (allowed bool, src limit.Source, counted bool) {
	c, t := h.c.Load(), h.lodge.table
	if c != nil {
		if !h.leaves(c, n, now) {
			if allowed, src, ok := h.answer(c, asked, n, now); ok {
				return allowed, src, allowed
			}
			if src, no := c.denies(now, n, h.rule); no && !t.lodge.wants(c, n, now) {
				return false, src, false
			}
		}
		t.names.see(h.rule)
		if v, src := h.claim(c, n, now); v != Unanswered {
			return v == Admitted, src, v == Admitted
		}
		if allowed, src, how := c.checkHeld(now, n, h.rule, uint8(t.epoch.Load())); how != gone {
			t.follow(c, h.own(), h.rule, now, allowed, how)
			return allowed, src, false
		}
	}
	at := t.Seek(h.key, h.rule)
	allowed, src, counted = t.allowAt(at, h.key, h.rule, n, now)
	h.find()
	return allowed, src, counted
}

// own returns the pocket that counters may lend to, or nil.
func (h *Handle) own() *pocket {
	if !h.steady {
		return nil
	}
	return &h.pocket
}

// leaves reports whether c, which has lent to a slot, should try and lend to h.
func (h *Handle) leaves(c *Counter, n, now int64) bool {
	return h.steady && n == 1 && c.slot.Load() != nil && h.mayTry(now)
}

// answer lets a slot answer for c, if it has one: the one that it had the last time,
// so that c need not be looked at unless its key is a long one, or else the one that it
// has. One has been asked already.
func (h *Handle) answer(c *Counter, asked *slot, n, now int64) (allowed bool, src limit.Source, ok bool) {
	if n != 1 {
		return false, 0, false
	}
	is := h.slot.Load()
	if is != nil && is != asked {
		if allowed, src, ok = h.askSlot(is, c, now); ok {
			return allowed, src, true
		}
	}
	s := c.lodging()
	if s != is {
		h.slot.Store(s) // nil, too: what is another's now is of no use
		if s != nil {
			return h.askSlot(s, c, now)
		}
	}
	return false, 0, false
}

// askSlot lets s answer for c.
func (h *Handle) askSlot(s *slot, c *Counter, now int64) (allowed bool, src limit.Source, ok bool) {
	allowed, src, ok = h.lodge.answer(s, h.signOf(c), h.rule, now)
	if ok && h.refused.Load() == allowed {
		h.refused.Store(!allowed)
	}
	return allowed, src, ok
}

// signOf returns the sign of the key, of which c is the counter.
func (h *Handle) signOf(c *Counter) sign {
	if !hasMiddle(h.key) {
		return c.longSign()
	}
	return h.sign
}

// TakeFromSlot is [Table.TakeFromSlot].
func (h *Handle) TakeFromSlot(n, now int64) (res limit.Result, ok bool) {
	if n != 1 || !takesFromSlots(h.rule) {
		return res, false
	}
	if h.steady {
		if level, src, v := h.pocket.ask(now); v == Admitted {
			res = h.rule.TicksResult(level)
			res.Source = src
			return res, true
		}
	}
	return h.fromSlot(now, true)
}

// fromSlot takes, or peeks at, one unit of a counter that has a slot: the one that it had
// the last time, so that it need not be looked at unless its key is a long one, or else the
// one that it has.
func (h *Handle) fromSlot(now int64, book bool) (res limit.Result, ok bool) {
	c, was := h.c.Load(), h.slot.Load()
	if c == nil {
		return res, false
	}
	if was != nil {
		if res, ok = h.lodge.take(was, h.signOf(c), h.rule, now, book); ok {
			return res, true
		}
	}
	is := c.lodging()
	if is == nil || is == was {
		return res, false
	}
	h.slot.Store(is)
	return h.lodge.take(is, h.signOf(c), h.rule, now, book)
}

// TakeAt is [Table.TakeAt].
func (h *Handle) TakeAt(n, now int64) limit.Result { return h.ask(n, now, true) }

// Peek is [Table.Peek].
func (h *Handle) Peek(n, now int64) limit.Result {
	if n == 1 && takesFromSlots(h.rule) {
		if h.steady {
			if level, src, ok := h.pocket.peek(now); ok {
				res := h.rule.TicksResult(level)
				res.Source = src
				return res
			}
		}
		if res, ok := h.fromSlot(now, false); ok {
			return res
		}
	}
	return h.ask(n, now, false)
}

func (h *Handle) ask(n, now int64, book bool) limit.Result {
	t := h.lodge.table
	t.names.see(h.rule)
	if c := h.c.Load(); c != nil {
		c.mu.Lock()
		if c.lentTo() == &h.pocket {
			c.unsettleLocked()
		}
		if res, how := c.askHeld(now, n, h.rule, book, uint8(t.epoch.Load())); how != gone {
			if how != well {
				t.follow(c, h.own(), h.rule, now, true, how)
			}
			return res
		}
	}
	var res limit.Result
	if book {
		res = t.ask(t.Seek(h.key, h.rule), h.key, h.rule, n, now, true)
	} else {
		res = t.Peek(h.key, h.rule, n, now) // a slot, if there is one, need not give back what it has for that
	}
	h.find()
	return res
}

// find takes the counter of the key at hand, if it has one.
func (h *Handle) find() {
	t := h.lodge.table
	hash := t.hashOf(h.key, h.rule)
	sh := t.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c, _ := t.existingLocked(sh, hash, ident{alg: h.rule.Algorithm(), name: h.rule.Name(), key: h.key})
	h.c.Store(c)
	if c != nil {
		h.slot.Store(c.lodging())
		c.hasten()
	}
	h.tried.Store(0) // who asks by the name when the handle knows no counter is not somebody else
}
