package counter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unsafe"
)

// A counter keeps a short key in its first cache line, a longer one right behind the counter,
// in the same allocation, and one above that elsewhere. Of a key above MaxKey it keeps only the
// SHA-256 sum, behind the counter, so that what a key takes has a bound.

// MaxKey is the length, in bytes, of the longest key that a counter keeps as it is. It is that
// of the names in Redis.
const MaxKey = 256

// hexSum is a SHA-256 sum in hexadecimal digits.
type hexSum [2 * sha256.Size]byte

func sumOf(key string) (s hexSum) {
	sum := sha256.Sum256([]byte(key))
	hex.Encode(s[:], sum[:])
	return s
}

// KeyOf returns what a counter keeps of a key, and whether that is its sum.
func KeyOf(key string) (kept string, hashed bool) {
	if len(key) <= MaxKey {
		return key, false
	}
	s := sumOf(key)
	return string(s[:]), true
}

// behindKey is the length, in bytes, of the longest key that is kept behind a counter.
const behindKey = 64

// Values of keyBytes that are not a length.
const (
	longKey  = inlineKey + 1 + iota // the key is in more; short holds its length
	isBehind                        // the key is in a namedCounter; short has its length and, in the second byte, 1 if it is a sum
)

// namedCounter is a counter with a key that does not fit into it.
type namedCounter struct {
	counter Counter
	name    [behindKey]byte
}

// setKey gives a new counter its key. It copies the key, which may be part of a large string.
func (c *Counter) setKey(key string) {
	switch {
	case len(key) > MaxKey:
		c.short[0], c.short[1] = uint8(len(hexSum{})), 1
		*c.behind() = sumOf(key)
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

// isBehindCounter reports whether a key, or its sum, is kept in a namedCounter.
func isBehindCounter(key string) bool {
	return len(key) > inlineKey && len(key) <= behindKey || len(key) > MaxKey
}

// IsHashed reports whether c keeps the sum of its key.
func (c *Counter) IsHashed() bool { return c.keyBytes == isBehind && c.short[1] == 1 }

// hasKey reports whether key is the key of c. A key that looks like a sum is not taken for it.
func (c *Counter) hasKey(key string) bool {
	if len(key) <= MaxKey {
		return c.Key() == key && !c.IsHashed()
	}
	if !c.IsHashed() {
		return false
	}
	s := sumOf(key)
	return c.Key() == string(s[:])
}

// Key returns the key as the caller of the check gave it, or its SHA-256 sum in hexadecimal
// digits if it is longer than MaxKey, see IsHashed.
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
