package table

import (
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Handle is a key of a [Table] under a rule. It remembers the entry of the key: a check needs no
// look-up as long as the key keeps that entry. It counts nothing itself. All methods except Bind
// are safe for concurrent use. The zero Handle is not bound.
//
// A Handle and one pointer beside it take a cache line of 64 bytes, so a check reads only that line
// and the entry.
type Handle struct {
	entry atomic.Pointer[counter.Entry] // nil: not looked up yet
	print uint64
	rule  *limit.Rule
	table *Table // nil: not bound to a table
	hash  uint64
	key   string
}

// Bind binds h to a key. Call it once. It creates no counter yet, and retains the string. If t is
// nil, h only knows its key and rule, see Bound.
func (h *Handle) Bind(t *Table, key string, rule *limit.Rule) {
	h.table, h.key, h.rule = t, key, rule
	if t != nil {
		h.hash, h.print = t.hashOf(key, rule)
	}
}

// Bound reports whether h is bound to a table.
func (h *Handle) Bound() bool { return h.table != nil }

// Key returns the key that h was bound to.
func (h *Handle) Key() string { return h.key }

// Rule returns the rule that h was bound to.
func (h *Handle) Rule() *limit.Rule { return h.rule }

// AllowBy is [Table.AllowBy].
func (h *Handle) AllowBy(clock clock.Clock, n int64) (allowed bool, src limit.Source, counted bool) {
	e := h.entry.Load()
	fetchToWrite(unsafe.Pointer(e)) // e may be nil: a prefetch of nil does nothing
	allowed, src, counted = h.table.allowFrom(e, h.hash, h.print, h.key, h.rule, n, int64(clock.Now()))
	h.find(e)
	return allowed, src, counted
}

// Take is [Table.Take].
func (h *Handle) Take(clock clock.Clock, n int64) (res limit.Result, counted bool) {
	e := h.entry.Load()
	fetchToWrite(unsafe.Pointer(e))
	res, counted = h.table.takeFrom(e, h.hash, h.print, h.key, h.rule, n, int64(clock.Now()))
	h.find(e)
	return res, counted
}

// Peek is [Table.Peek].
func (h *Handle) Peek(clock clock.Clock) (res limit.Result) {
	e := h.entry.Load()
	fetchToWrite(unsafe.Pointer(e))
	res = h.table.peekFrom(e, h.hash, h.print, h.key, h.rule, int64(clock.Now()))
	h.find(e)
	return res
}

// find looks up the entry again if was is no longer the entry of the key.
func (h *Handle) find(was *counter.Entry) {
	if was == nil || was.Print() != h.print {
		h.entry.Store(h.table.index.search(h.hash, h.print))
	}
}
