package local

import (
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Handle is a key of a [Table] under a rule, with its counter at hand: a check
// needs no look-up as long as that counter lives, and one when it has been
// forgotten or replaced. It keeps the counter's memory, not its life. Methods but
// Bind are safe for concurrent use. With one more field it fills a cache line, so
// that whoever has it as a part waits for memory once less.
type Handle struct {
	table *Table
	rule  *limit.Rule
	key   string
	c     atomic.Pointer[Counter] // nil: look it up
	slot  atomic.Pointer[slot]    // that has answered for c, maybe; nil: none has
	// refused is whether the latest check was: then nobody is going to write to slot.
	refused atomic.Bool
}

// Bind makes h the handle of a key. It creates no counter yet, and keeps the key.
// Without a table h only knows its key and rule, see Bound.
func (h *Handle) Bind(t *Table, key string, rule *limit.Rule) {
	h.table, h.key, h.rule = t, key, rule
}

// Bound reports whether h can be asked.
func (h *Handle) Bound() bool { return h.table != nil }

// Key returns the key that h was bound to.
func (h *Handle) Key() string { return h.key }

// Rule returns the rule that h was bound to.
func (h *Handle) Rule() *limit.Rule { return h.rule }

// AllowBy is [Table.AllowBy].
func (h *Handle) AllowBy(clock *clock.Reader, n int64) (allowed bool, src limit.Source, counted bool) {
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
	c := h.c.Load()
	if c != nil && n == 1 {
		if allowed, src, ok := h.answer(c, asked, now); ok {
			return allowed, src, allowed
		}
	}
	if c != nil {
		if src, no := c.denies(now, n, h.rule); no && !h.table.lodge.wants(c, n, now) {
			return false, src, false
		}
		if allowed, src, how := c.check(now, n, h.rule, uint8(h.table.epoch.Load())); how != gone {
			h.table.follow(c, h.rule, now, allowed, how)
			return allowed, src, false
		}
	}
	at := h.table.Seek(h.key, h.rule)
	allowed, src, counted = h.table.allowAt(at, h.key, h.rule, n, now)
	h.find()
	return allowed, src, counted
}

// answer lets a slot answer for c, if it has one: the one that it had the last time,
// so that c need not be looked at, or else the one that it has. One has been asked already.
func (h *Handle) answer(c *Counter, asked *slot, now int64) (allowed bool, src limit.Source, ok bool) {
	is := h.slot.Load()
	if is != nil && is != asked {
		if allowed, src, ok = h.askSlot(is, c, now); ok {
			return allowed, src, true
		}
	}
	s := c.slot.Load()
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
	allowed, src, ok = h.table.lodge.answerFor(s, c, h.rule, now)
	if ok && h.refused.Load() == allowed {
		h.refused.Store(!allowed)
	}
	return allowed, src, ok
}

// TakeFromSlot is [Table.TakeFromSlot].
func (h *Handle) TakeFromSlot(n, now int64) (res limit.Result, ok bool) {
	c := h.c.Load()
	if c == nil || n != 1 || !takesFromSlots(h.rule) {
		return res, false
	}
	s := c.slot.Load()
	if s == nil {
		return res, false
	}
	return h.table.lodge.take(s, c, sign{}, h.rule, now)
}

// TakeAt is [Table.TakeAt].
func (h *Handle) TakeAt(n, now int64) limit.Result { return h.ask(n, now, true) }

// Peek is [Table.Peek].
func (h *Handle) Peek(n, now int64) limit.Result { return h.ask(n, now, false) }

func (h *Handle) ask(n, now int64, book bool) limit.Result {
	if c := h.c.Load(); c != nil {
		if res, how := c.ask(now, n, h.rule, book, uint8(h.table.epoch.Load())); how != gone {
			if how != well {
				h.table.follow(c, h.rule, now, true, how)
			}
			return res
		}
	}
	res := h.table.ask(h.table.Seek(h.key, h.rule), h.key, h.rule, n, now, book)
	h.find()
	return res
}

// find takes the counter of the key at hand, if it has one.
func (h *Handle) find() {
	t := h.table
	hash := t.hashOf(h.key, h.rule)
	sh := t.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c, _ := t.existingLocked(sh, hash, ident{alg: h.rule.Algorithm(), name: h.rule.Name(), key: h.key})
	h.c.Store(c)
	if c != nil {
		h.slot.Store(c.slot.Load())
	}
}
