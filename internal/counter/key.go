package counter

import (
	"crypto/sha256"
	"encoding/hex"
	"unsafe"
)

// MaxKey is the length, in bytes, of the longest key that a counter keeps as it is, so that
// what a key takes has a bound. It is that of the names in Redis.
const MaxKey = 256

// sumOf returns the SHA-256 sum of a key in hexadecimal digits.
func sumOf(key string) (s [2 * sha256.Size]byte) {
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(key), len(key))) // is only read: no copy
	hex.Encode(s[:], sum[:])
	return s
}

// KeyOf returns what a counter keeps of a key: the key, or its sum if it is longer than MaxKey.
func KeyOf(key string) (kept string, hashed bool) {
	if len(key) <= MaxKey {
		return key, false
	}
	s := sumOf(key)
	return string(s[:]), true
}

// hasKey reports whether key is the key of c. A key that looks like a sum is not taken for it.
// It allocates nothing.
func (c *Counter) hasKey(key string) bool {
	if hashed := len(key) > MaxKey; !hashed || !c.hashed {
		return hashed == c.hashed && key == c.key
	}
	s := sumOf(key)
	return string(s[:]) == c.key
}

// Key returns the key, or its sum, see [KeyOf].
func (c *Counter) Key() string { return c.key }

// IsHashed reports whether c keeps the sum of its key.
func (c *Counter) IsHashed() bool { return c.hashed }
