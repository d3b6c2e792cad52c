package counter

import (
	"crypto/sha256"
	"encoding/hex"
)

// MaxKey is the length, in bytes, of the longest key that a counter keeps as it is, so that
// what a key takes has a bound. It is that of the names in Redis.
const MaxKey = 256

// KeyOf returns what a counter keeps of a key: the key, or its SHA-256 sum in hexadecimal
// digits if it is longer than MaxKey.
func KeyOf(key string) (kept string, hashed bool) {
	if len(key) <= MaxKey {
		return key, false
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:]), true
}

// hasKey reports whether key is the key of c. A key that looks like a sum is not taken for it.
func (c *Counter) hasKey(key string) bool {
	kept, hashed := KeyOf(key)
	return kept == c.key && hashed == c.hashed
}

// Key returns the key, or its sum, see [KeyOf].
func (c *Counter) Key() string { return c.key }

// IsHashed reports whether c keeps the sum of its key.
func (c *Counter) IsHashed() bool { return c.hashed }
