package local

import (
	"encoding/binary"
	"unsafe"
)

// How a slot is told to be that of a key, or of its counter.

// label has, from the top: the number of the terms of the loan (43 bits), what ends leaves
// out of the key (16), how long the key is (5). Of one with a middle the 16 are how long it
// is, and the 5 middleKey; of a long one, some of its hash, and longKey.
type label uint64

func (w label) terms() uint64 { return uint64(w >> restBits) }
func (w label) rest() rest    { return rest(w & (1<<restBits - 1)) }

func newLabel(terms uint64, r rest) label { return label(terms<<restBits | uint64(r)) }

// rest is what a label has of a key: how long it is, and what lies between its ends.
type rest uint32

const (
	restBits   = 16 + restMiddle
	restMiddle = 5
)

func newRest(middle uint16, length int) rest { return rest(middle)<<restMiddle | rest(length) }

// sign is what tells a slot who asks: the key itself, unless it is a long one, see longSign.
type sign struct {
	first, last uint64
	rest        rest
	middle      *middle // of a key that has one
}

// signOf returns the sign of a key of inlineKey bytes at the most.
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

// sign returns what the slot of c keeps. A middle is written to m.
func (c *Counter) sign(m *middle) sign {
	switch key := c.Key(); {
	case len(key) <= inlineKey:
		return signOf(key)
	case hasMiddle(key):
		return middleSign(key, m)
	}
	return c.longSign()
}

// signOf returns the sign of a key of more than inlineKey bytes with this hash, if s can be
// its slot. That of a long key is its counter's, when s is; a middle is written to m.
func (l *lodge) signOf(s *slot, key string, h uint64, m *middle) (k sign, ok bool) {
	if hasMiddle(key) {
		return middleSign(key, m), true
	}
	r := l.rows.Load()
	i, ok := r.index(s)
	if !ok {
		return sign{}, false
	}
	d := &r.tenants[i]
	fetchToRead(unsafe.Pointer(d))
	if label(s.label.Load()).rest() != newRest(uint16(h), longKey) {
		return sign{}, false
	}
	fetchAt(uintptr(s.ends[0].Load()))
	if more := s.ends[1].Load(); more != 0 {
		fetchAt(uintptr(more))
	}
	c := d.c.Load()
	if c == nil || c.Key() != key {
		return sign{}, false
	}
	return c.longSign(), true
}
