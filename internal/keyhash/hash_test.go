package keyhash

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keysOf are many keys that differ in little, of each length that is hashed in its own
// way.
var keysOf = map[string]func(i int) string{
	"of 1 to 7 digits":     func(i int) string { return fmt.Sprint(i) },
	"of 4 bytes":           func(i int) string { return string([]byte{byte(i), byte(i >> 8), byte(i >> 16), 'k'}) },
	"of 8 bytes":           func(i int) string { return fmt.Sprintf("%08d", i) },
	"of 8 bytes, bitwise":  func(i int) string { return string([]byte{byte(i), 0, 0, byte(i >> 8), 0, 0, 0, byte(i >> 16)}) },
	"of users":             func(i int) string { return fmt.Sprint("user:", i) },
	"of 16 bytes":          func(i int) string { return fmt.Sprintf("%016x", i) },
	"of 18 bytes, between": func(i int) string { return fmt.Sprintf("abcdefg%04xhijklmn", i&0xffff) },
	"of zeros":             func(i int) string { return strings.Repeat("\x00", i%(shortKey+1)) },
	"of 18 bytes, only between": func(i int) string {
		return string([]byte("aaaaaaaa")) + string([]byte{byte(i), byte(i >> 8)}) + "aaaaaaaa"
	},
	"with zeros at the end": func(i int) string { return fmt.Sprintf("%08x", i) + strings.Repeat("\x00", 8) },
	"long":                  func(i int) string { return fmt.Sprintf("user:%032d", i) },
}

func hash(s Hasher, key string) uint64 {
	h, _ := s.Of(key, 0)
	return h
}

func print(s Hasher, key string) uint64 {
	_, p := s.Of(key, 0)
	return p
}

// ranges are the bits of a hash that something goes by, from which on and how many.
var ranges = map[string]struct{ from, bits int }{
	"the row":           {8, 14},
	"the tag":           {0, 8},
	"the shard":         {58, 6},
	"the first 16 bits": {0, 16},
	"those in between":  {24, 16},
	"the last 16 bits":  {48, 16},
}

// Keys that look alike are apart in every part of the hash.
func TestHashesSpread(t *testing.T) {
	const n = 1 << 16
	for what, key := range keysOf {
		s := New()
		hashes := make(map[uint64]string, n)
		for i := range n {
			k := key(i)
			h := hash(s, k)
			if other, taken := hashes[h]; taken && other != k {
				t.Fatalf("%s: %q and %q collide", what, k, other)
			}
			hashes[h] = k
		}
		if len(hashes) < 1000 {
			continue
		}
		for part, p := range ranges {
			loads := make([]int, 1<<p.bits)
			for h := range hashes {
				loads[h>>p.from&uint64(len(loads)-1)]++
			}
			// With a fair hash the sum of (load − mean)²/mean is as high as there are
			// places, give or take the root of twice as many.
			mean, sum := float64(len(hashes))/float64(len(loads)), 0.0
			for _, l := range loads {
				sum += (float64(l) - mean) * (float64(l) - mean) / mean
			}
			if even := sum / float64(len(loads)); even < 0.2 || even > 1.9 {
				t.Errorf("%s: by %s, %d keys are %.2f times as uneven as by chance, with %x", what, part, len(hashes), even, s)
			}
		}
	}
}

// Each bit of a key has a part in each bit of its hash and of its fingerprint.
func TestHashesMix(t *testing.T) {
	for what, hash := range map[string]func(Hasher, string) uint64{"hash": hash, "fingerprint": print} {
		mixes(t, what, hash)
	}
}

func mixes(t *testing.T, what string, hash func(Hasher, string) uint64) {
	const seeds = 400
	for _, n := range []int{1, 3, 4, 7, 8, 10, 16, 17, shortKey} {
		for bit := range 8 * n {
			var flips [64]int
			for range seeds {
				s := New()
				k := []byte(strings.Repeat("k", n))
				was := hash(s, string(k))
				k[bit/8] ^= 1 << (bit % 8)
				for d := was ^ hash(s, string(k)); d != 0; d &= d - 1 {
					flips[bits.TrailingZeros64(d)]++
				}
			}
			for b, f := range flips {
				if f < seeds*3/10 || f > seeds*7/10 {
					t.Errorf("of %d bytes, bit %d turns bit %d of the %s with %d of %d hashers", n, bit, b, what, f, seeds)
				}
			}
		}
	}
}

// No two hashers have the same hash, and one hasher has only one for a key, wherever that
// is in memory.
func TestSeedsDiffer(t *testing.T) {
	a, b := New(), New()
	seeds := make(map[uint64]bool)
	for _, s := range append(a.short[:], b.short[:]...) {
		if seeds[s] {
			t.Errorf("seeds %x and %x", a, b)
		}
		seeds[s] = true
	}
	for n := range 2 * shortKey {
		k := strings.Repeat("x", n)
		if hash(a, k) != hash(a, strings.Clone(k)) {
			t.Errorf("two hashes for %q", k)
		}
		if hash(a, k) == hash(b, k) || print(a, k) == print(b, k) || hash(a, k) == print(a, k) {
			t.Errorf("two hashers have the same for %q", k)
		}
	}
}
