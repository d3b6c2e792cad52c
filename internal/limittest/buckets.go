package limittest

import (
	"math/big"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Gone is Gone of internal/arith by its words: unit by unit, in fractions of any size.
func Gone(r *limit.Rule, units, last, passed int64) int64 {
	if passed >= last {
		return units
	}
	whole := func(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
	if r.Limit() == 0 || units < 2 {
		return 0
	}
	strict, apart := 0, whole(int64(arith.Of(r).Width)*int64(arith.Of(r).Buckets))
	apart.Quo(apart, whole(r.Limit()))
	if even := new(big.Rat).Quo(whole(last), whole(units-1)); even.Cmp(apart) <= 0 {
		strict, apart = 1, even // the first came after the beginning
	}
	// came returns when unit i came, the last being number units-1.
	came := func(i int64) *big.Rat {
		before := new(big.Rat).Mul(apart, whole(units-1-i))
		return before.Sub(whole(last), before)
	}
	early, end := int64(0), units // a search by hand: an int may have 32 bits only
	for early < end {
		if middle := early + (end-early)/2; came(middle).Cmp(whole(passed))+strict > 0 {
			end = middle
		} else {
			early = middle + 1
		}
	}
	share := new(big.Rat).Quo(whole(r.Limit()), whole(int64(arith.Of(r).Buckets)))
	most := new(big.Int).Quo(share.Num(), share.Denom()).Int64()
	if !share.IsInt() {
		most++
	}
	return min(early, most)
}
