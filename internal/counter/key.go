package counter

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// A counter keeps a short key in its first cache line, a longer one right behind the counter,
// in the same allocation, and a very long one elsewhere.

// The longest keys, in bytes, that are kept in the counter itself, and behind it.
const (
	inlineKey = 18
	behindKey = 64
)

// Values of keyBytes that are not a length.
const (
	longKey  = inlineKey + 1 + iota // the key is in more; short holds its length
	isBehind                        // the key is in a namedCounter; the first byte of short is its length
)

// namedCounter is a counter with a key that does not fit into it.
type namedCounter struct {
	counter Counter
	name    [behindKey]byte
}

// setKey gives a new counter its key. It copies the key, which may be part of a large string.
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

// behind returns the bytes behind the counter of a namedCounter.
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
