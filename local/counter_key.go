package local

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// Where a counter has its key: a short one in its first line, which each check reads
// anyway, one that is not very long in the line behind its own three.

// How long a key may be to be kept in the counter itself, and behind it.
const (
	inlineKey = 18
	behindKey = 64
)

// What keyBytes is, if not a length.
const (
	longKey  = inlineKey + 1 + iota // it is in more, and so long as short says. In a label: the slot does not have it
	isBehind                        // it is in a namedCounter, and so long as short says in the first byte
)

// middleKey is, in a label, the length of every key that has a middle.
const middleKey = longKey + 1

// namedCounter is a counter with a key that is too long for it. They are four cache
// lines together.
type namedCounter struct {
	counter Counter
	name    [behindKey]byte
}

// setKey gives a new counter its key. It may be part of something large, so that it is
// copied.
func (c *Counter) setKey(key string) {
	switch {
	case c.keyBytes == isBehind:
		c.short[0] = uint8(len(key))
		copy(c.behind()[:], key)
	case len(key) <= inlineKey:
		c.keyBytes = uint8(len(key))
		copy(c.short[:], key)
	default:
		c.keyBytes = longKey
		binary.NativeEndian.PutUint64(c.short[:], uint64(len(key)))
		c.with().key = unsafe.StringData(strings.Clone(key))
	}
}

// behind returns what there is behind a namedCounter's counter.
func (c *Counter) behind() *[behindKey]byte { return &(*namedCounter)(unsafe.Pointer(c)).name }

// Key returns the key as the caller of the check gave it.
func (c *Counter) Key() string {
	// The bytes never change, and the string keeps them from being freed.
	switch c.keyBytes {
	case longKey:
		return unsafe.String(c.more.key, int(binary.NativeEndian.Uint64(c.short[:])))
	case isBehind:
		return unsafe.String(&c.behind()[0], int(c.short[0]))
	}
	return unsafe.String(&c.short[0], int(c.keyBytes))
}
