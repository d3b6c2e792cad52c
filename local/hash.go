package local

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
)

// hasher hashes keys. Its seeds, which are no two tables' the same and nobody is told of,
// keep an attacker from choosing keys that collide.
type hasher struct {
	long              maphash.Seed
	first, last, rest uint64
}

func newHasher() hasher {
	return hasher{long: maphash.MakeSeed(), first: rand.Uint64(), last: rand.Uint64(), rest: rand.Uint64()}
}

// of returns the hash of a key.
func (s *hasher) of(key string) uint64 {
	if len(key) > inlineKey {
		return maphash.String(s.long, key)
	}
	return s.sign(signOf(key))
}

// sign returns the hash of the key of a sign, which is all that such a key is: two
// products, each folded, as Go's own hash of short strings has it where there are no
// instructions for AES. Slots need the sign anyway, and then this takes a third of the
// time of [maphash.String].
func (s *hasher) sign(k sign) uint64 {
	return folded(folded(k.first^s.first, k.last^s.last)^s.rest, uint64(k.rest)^s.last)
}

func folded(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
