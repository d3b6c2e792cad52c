package local

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// How a slot is told to be that of a key which is too long for the slot and yet no longer
// than many are: one with an identifier of 36 bytes, as most of them print it.

// middle is what lies between the ends of a key of more than inlineKey bytes and mostMiddle
// at the most. Slots have it in an array of its own, so that those of shorter keys stay
// half a cache line; it comes in from memory together with the slot. What it begins with is
// followed by what it ends with, and then by what comes after and before these. Parts
// of it overlap unless the key is as long as can be.
type middle [4]uint64

const mostMiddle = 8 + 4*8 + 8

// hasMiddle reports whether a key of more than inlineKey bytes has a middle.
func hasMiddle(key string) bool { return len(key) <= mostMiddle }

// middleSign returns the sign of a key that has a middle, which it writes to m.
func middleSign(key string, m *middle) sign {
	b := unsafe.Slice(unsafe.StringData(key), len(key))
	n := len(b)
	m[0], m[1] = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[n-16:])
	m[2], m[3] = 0, 0
	if n > 32 { // else these were all of it
		m[2], m[3] = binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[n-24:])
	}
	return sign{
		first: binary.LittleEndian.Uint64(b), last: binary.LittleEndian.Uint64(b[n-8:]),
		rest: newRest(uint16(n), middleKey), middle: m,
	}
}

// slotMiddle is the middle of the key of a slot.
type slotMiddle [len(middle{})]atomic.Uint64

// put is for who lends to the slot, before it is lent to.
func (s *slotMiddle) put(m *middle) {
	for i := range m {
		s[i].Store(m[i])
	}
}

func (s *slotMiddle) is(m *middle) bool {
	return s != nil && s[0].Load() == m[0] && s[1].Load() == m[1] && s[2].Load() == m[2] && s[3].Load() == m[3]
}

// bringMiddles makes the middles, if there are none, and has the system give out their
// memory, see newSlotRows. One at a time may call it.
func (r *slotRows) bringMiddles() {
	if r.middles.Load() != nil {
		return
	}
	m := make([]slotMiddle, len(r.slots))
	for i := 0; i < len(m); i += slotsInPage {
		m[i][0].Store(0)
	}
	r.middles.Store(&m)
}

// lacksMiddle reports whether the slots of r are not for this key yet.
func (r *slotRows) lacksMiddle(key string) bool {
	return len(key) > inlineKey && hasMiddle(key) && r.middles.Load() == nil
}

// middleOf returns the middle of the key of s, nil if it has none.
func (r *slotRows) middleOf(s *slot) *slotMiddle {
	i, ok := r.index(s)
	if m := r.middles.Load(); ok && m != nil {
		return &(*m)[i]
	}
	return nil
}

// fetchMiddle has the middle of a key come into the processor's cache, if s is its slot.
func (l *lodge) fetchMiddle(s *slot, key string) {
	if len(key) > inlineKey && hasMiddle(key) {
		fetchToRead(unsafe.Pointer(l.rows.Load().middleOf(s))) // which may be nil
	}
}
