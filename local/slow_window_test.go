package local

import (
	"math/big"

	"github.com/hybridlimit/hybridlimit/limit"
)

// slowGone is [limit.Rule.Gone] by its words: unit by unit, in fractions of any size.
func slowGone(r *limit.Rule, units, last, passed int64) int64 {
	if passed >= last {
		return units
	}
	whole := func(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
	if r.Limit() == 0 || units < 2 {
		return 0
	}
	strict, apart := 0, whole(int64(r.Width())*int64(r.Buckets()))
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
	share := new(big.Rat).Quo(whole(r.Limit()), whole(int64(r.Buckets())))
	most := new(big.Int).Quo(share.Num(), share.Denom()).Int64()
	if !share.IsInt() {
		most++
	}
	return min(early, most)
}

// slowBuckets counts a sliding or a fixed window in buckets that are kept for ever.
type slowBuckets struct {
	r           *limit.Rule
	units, last map[int64]int64
}

func newSlowBuckets(r *limit.Rule) *slowBuckets {
	return &slowBuckets{r, map[int64]int64{}, map[int64]int64{}}
}

func (b *slowBuckets) add(now, n int64) {
	if n == 0 {
		return
	}
	id := floorDiv(now, int64(b.r.Width()))
	b.units[id] += n
	b.last[id] = max(b.last[id], now-id*int64(b.r.Width()))
}

func (b *slowBuckets) used(now int64) (n int64) {
	id := floorDiv(now, int64(b.r.Width()))
	for age := range int64(b.r.Kept()) + 1 {
		units := b.units[id-age]
		if age > 0 && age == int64(b.r.Kept()) {
			units -= slowGone(b.r, units, b.last[id-age], now-id*int64(b.r.Width()))
		}
		n += units
	}
	return n
}
