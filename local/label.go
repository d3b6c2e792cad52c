package local

import (
	"encoding/binary"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// How a slot is told to be that of a key, or of its counter, with the lock and without.

// label has, from the top: the end of a refusal (32 bits; 0: it admits), what ends
// leaves out of the key (16), which of the laws it follows (8), the source of the
// answers (3), how long the key is (5).
type label uint64

func (w label) refusal() uint32      { return uint32(w >> 32) }
func (w label) middle() uint16       { return uint16(w >> 16) }
func (w label) law() uint8           { return uint8(w >> 8) }
func (w label) source() limit.Source { return limit.Source(w >> 5 & 7) }
func (w label) length() int          { return int(w & 31) }

func newLabel(refusal uint32, middle uint16, law uint8, src limit.Source, length uint8) label {
	return label(uint64(refusal)<<32 | uint64(middle)<<16 | uint64(law)<<8 | uint64(src)<<5 | uint64(length))
}

// asker is who wants an answer: the counter of a key when that is known, or else the
// first and the last 8 bytes of a key of up to slotKey bytes, and those in between: with
// its length all that there is of it.
type asker struct {
	c           *Counter // nil: unknown
	first, last uint64
	middle      uint16
	length      int
}

// byCounter asks without a look at the key, which may be elsewhere in memory.
func byCounter(c *Counter) asker { return asker{c: c} }

func byKey(key string) asker {
	a := asker{length: len(key)}
	b := unsafe.Slice(unsafe.StringData(key), len(key))
	switch n := len(b); {
	case n > 16:
		a.middle = uint16(b[8]) | uint16(b[n-9])<<8
		fallthrough
	case n >= 8:
		a.first, a.last = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		a.first, a.last = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))
	case n > 0:
		a.first, a.last = uint64(b[0]), uint64(b[n/2])<<8|uint64(b[n-1])
	}
	return a
}

// isOf reports whether s is of the one who asks, when its label is w. Without the lock
// that is true if the label is still w afterwards.
func (s *slot) isOf(w label, a *asker) bool {
	if a.c != nil {
		return s.c.Load() == a.c
	}
	return w.length() == a.length && s.ends[1].Load() == a.last && s.ends[0].Load() == a.first && w.middle() == a.middle
}

// look returns what s shows to the one who asks, without the lock: ok if that is one
// loan's, and the asker's own. A loan begins with the season, after the label, and ends
// with it, so that between two looks at a label there is none but its own.
func (s *slot) look(a *asker) (w label, season uint32, ok bool) {
	w = label(s.label.Load())
	ok = s.isOf(w, a)
	season = s.season.Load()
	return w, season, ok && label(s.label.Load()) == w
}
