package local

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
)

// hasher hashes keys under rules. Its seeds, which are no two tables' the same and nobody
// is told of, keep an attacker from knowing which keys collide.
type hasher struct {
	long              maphash.Seed
	first, last, rest uint64
}

func newHasher() hasher {
	return hasher{long: maphash.MakeSeed(), first: rand.Uint64(), last: rand.Uint64(), rest: rand.Uint64()}
}

// of returns the hash of a key under a rule with this hash.
func (s *hasher) of(key string, rule uint64) uint64 {
	if len(key) > inlineKey {
		return folded(maphash.String(s.long, key)^s.rest^rule, s.last)
	}
	return s.sign(signOf(key), rule)
}

// sign returns the hash of the key of a sign, which is all that such a key is: two
// products, each folded, as Go's own hash of short strings has it where there are no
// instructions for AES. Slots need the sign anyway, and then this takes a third of the
// time of [maphash.String]. The rule is within: put on top, its hash would have two rules
// that differ in it by little meet in the same slot with all of their keys.
func (s *hasher) sign(k sign, rule uint64) uint64 {
	rest := uint64(k.rest) // in both, that it may go through two as well
	return folded(folded(k.first^rest<<24^s.first, k.last^s.last)^s.rest^rule, rest^s.last)
}

func folded(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
