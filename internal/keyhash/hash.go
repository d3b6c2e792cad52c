// Package keyhash hashes keys under rules, with secret seeds, to a hash and to a fingerprint.
package keyhash

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"unsafe"
)

// shortKey is the length, in bytes, of the longest key that is hashed without package
// hash/maphash.
const shortKey = 18

// Hasher hashes keys under rules. Its seeds are random and it does not show them: an attacker
// cannot know which keys collide. Build it with [New]: all zero Hashers hash alike. It is
// never written to, and safe for concurrent use.
type Hasher struct {
	long, longPrint maphash.Seed
	short           [6]uint64
}

// New returns a Hasher with seeds of its own.
func New() Hasher {
	s := Hasher{long: maphash.MakeSeed(), longPrint: maphash.MakeSeed()}
	for i := range s.short {
		s.short[i] = rand.Uint64()
	}
	return s
}

// Of returns the hash of a key under a rule with the given hash, and the fingerprint of the
// two: a second hash with other seeds, which is never 0.
func (s *Hasher) Of(key string, rule uint64) (h, print uint64) {
	m := &s.short
	if len(key) > shortKey {
		h = folded(maphash.String(s.long, key)^m[0]^rule, m[1])
		print = folded(maphash.String(s.longPrint, key)^m[2]^rule, m[3])
		return h, max(print, 1)
	}
	// Two products for each, as in Go's own hash of short strings for processors without
	// AES: a third of the time of [maphash.String]. The hash of the rule goes into the last
	// product. To xor it to the result would be wrong: of two rules whose hashes differ in
	// few bits all keys would meet in the same rows.
	first, last, rest := parts(key)
	h = folded(folded(first^rest<<24^m[0], last^m[1])^m[2]^rule, rest^m[1])
	print = folded(folded(first^rest<<40^m[3], last^m[4])^m[5]^rule, rest^m[4])
	return h, max(print, 1)
}

func folded(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// parts returns all of a key of at most shortKey bytes: its first and last bytes, and in
// rest its length and the bytes between.
func parts(key string) (first, last, rest uint64) {
	b := unsafe.Slice(unsafe.StringData(key), len(key))
	switch n := len(b); {
	case n > 16:
		between := uint64(b[8]) | uint64(b[n-9])<<8
		return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:]), between<<8 | uint64(n)
	case n >= 8:
		return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:]), uint64(n)
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:])), uint64(n)
	case n > 0:
		return uint64(b[0]), uint64(b[n/2])<<8 | uint64(b[n-1]), uint64(n)
	}
	return 0, 0, 0
}
