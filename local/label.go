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

// keyEnds returns the first and the last 8 bytes of a key of up to slotKey bytes, and
// those in between: with its length all that there is of it.
func keyEnds(key string) (first, last uint64, middle uint16) {
	b := unsafe.Slice(unsafe.StringData(key), len(key))
	switch n := len(b); {
	case n > 16:
		middle = uint16(b[8]) | uint16(b[n-9])<<8
		fallthrough
	case n >= 8:
		return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:]), middle
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:])), 0
	case n > 0:
		return uint64(b[0]), uint64(b[n/2])<<8 | uint64(b[n-1]), 0
	}
	return 0, 0, 0
}

// isOf reports whether s, when its label is w, is of a counter; or of a key, when the
// counter is not known: a key may be elsewhere in memory. Without the lock that is
// true if label and counter are still the same afterwards.
func (s *slot) isOf(w label, c *Counter, key string) bool {
	if c != nil {
		return s.c.Load() == c
	}
	if w.length() != len(key) {
		return false
	}
	first, last, middle := keyEnds(key)
	return s.ends[1].Load() == last && s.ends[0].Load() == first && w.middle() == middle
}

// look returns what s shows to a counter, or to a key, without the lock: ok if that is
// one loan's, and the asker's own. A loan begins with the season, after the label, and
// ends with it, so that between two looks at a label there is none but its own.
func (s *slot) look(c *Counter, key string) (w label, season uint32, ok bool) {
	w = label(s.label.Load())
	is := s.c.Load()
	ok = s.isOf(w, c, key)
	season = s.season.Load()
	return w, season, ok && s.c.Load() == is && label(s.label.Load()) == w
}
