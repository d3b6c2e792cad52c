package local

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// How a slot is told to be that of a key, or of its counter, with the lock and without.

// label has, from the top: the end of a refusal (32 bits; 0: it admits), what ends
// leaves out of the key (16), which of the laws it follows (8), the source of the
// answers (3), how long the key is (5; longKey for all long ones).
type label uint64

func (w label) refusal() uint32      { return uint32(w >> 32) }
func (w label) law() uint8           { return uint8(w >> 8) }
func (w label) source() limit.Source { return limit.Source(w >> 5 & (Sources - 1)) }
func (w label) rest() rest           { return rest(w) & restBits }

func newLabel(refusal uint32, law uint8, src limit.Source, r rest) label {
	return label(uint64(refusal)<<32 | uint64(law)<<8 | uint64(src)<<5 | uint64(r))
}

// Sources is how many [limit.Source] a label can tell apart, more than there are.
const Sources = 8

// rest is what a label has of a key, where the label has it: how long it is, and what
// lies between its ends.
type rest uint32

const (
	restBits   = rest(math.MaxUint16)<<restMiddle | lengthBits
	restMiddle = 16
	lengthBits = 31
)

func newRest(middle uint16, length int) rest { return rest(middle)<<restMiddle | rest(length) }

// sign is what tells a slot who asks: the key itself, unless it is a long one, see tenant.
type sign struct {
	first, last uint64
	rest        rest
}

// signOf returns the sign of a key that is not a long one.
func signOf(key string) sign {
	b := unsafe.Slice(unsafe.StringData(key), len(key))
	switch n := len(b); {
	case n >= 8:
		s := sign{first: binary.LittleEndian.Uint64(b), last: binary.LittleEndian.Uint64(b[n-8:]), rest: rest(n)}
		if n > 16 {
			s.rest = newRest(uint16(b[8])|uint16(b[n-9])<<8, n)
		}
		return s
	case n >= 4:
		return sign{first: uint64(binary.LittleEndian.Uint32(b)), last: uint64(binary.LittleEndian.Uint32(b[n-4:])), rest: rest(n)}
	case n > 0:
		return sign{first: uint64(b[0]), last: uint64(b[n/2])<<8 | uint64(b[n-1]), rest: rest(n)}
	}
	return sign{}
}

// longSign returns what the slot of a long key keeps: where the key is in memory, which is
// only to be fetched early, and of its hash what fits, so that hardly anybody else's key is
// compared. No hash says whose a counter is.
func (c *Counter) longSign() sign {
	k := sign{
		first: uint64(uintptr(unsafe.Pointer(unsafe.StringData(c.Key())))),
		rest:  newRest(uint16(c.hash), longKey),
	}
	if c.keyBytes == longKey {
		k.last = uint64(uintptr(unsafe.Pointer(c.more)))
	}
	return k
}

// tenant returns the counter of a long key with this hash, if s is its, or nil.
func (s *slot) tenant(key string, h uint64) *Counter {
	if label(s.label.Load()).rest() != newRest(uint16(h), longKey) {
		return nil
	}
	fetchAt(uintptr(s.ends[0].Load()))
	if more := s.ends[1].Load(); more != 0 {
		fetchAt(uintptr(more))
	}
	c := s.c.Load()
	if c == nil || c.Key() != key {
		return nil
	}
	return c
}

// isOf reports whether s, when its label is w, is of the key of a sign. Without the lock
// that is true if label and counter are still the same afterwards.
func (s *slot) isOf(w label, k sign) bool {
	return w.rest() == k.rest && s.ends[1].Load() == k.last && s.ends[0].Load() == k.first
}

// isFor reports whether s has the state of c.
func (s *slot) isFor(c *Counter) bool { return s.c.Load() == c }

// look returns what s shows to a counter, or to a key when the counter is not known,
// without the lock: ok if that is one loan's, and the asker's own. A loan begins with the
// season, after the label, and ends with it, so that between two looks at a label there is
// none but its own, unless the same refusal has gone and come back with another's loan
// between: then that one may be refused once.
func (s *slot) look(c *Counter, k sign) (w label, season uint32, ok bool) {
	w = label(s.label.Load())
	is := s.c.Load()
	if c != nil {
		ok = is == c
	} else {
		ok = s.isOf(w, k)
	}
	season = s.season.Load()
	return w, season, ok && s.c.Load() == is && label(s.label.Load()) == w
}
