package algorithm

import (
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Bucket is a number of units that were admitted in one bucket of a window.
// ID counts buckets since the epoch of the authority's clock. Last is how long after
// the beginning of the bucket its last unit came, or any later time up to its end.
type Bucket struct {
	ID, Units int64
	Last      time.Duration
}

// shift moves every bucket back by k and returns the units that fall out.
func shift(b []int64, k int64) (gone int64) {
	n := len(b)
	if k > int64(n) {
		k = int64(n)
	}
	for _, u := range b[n-int(k):] {
		gone += u
	}
	copy(b[k:], b[:n-int(k)])
	clear(b[:k])
	return gone
}

// unshift moves every bucket forward by k. Buckets that would lie before the first
// are added to it.
func unshift(b []int64, k int64) {
	n := int64(len(b))
	if n == 0 {
		return
	}
	k = min(k, n-1)
	for i := int64(1); i <= k; i++ {
		b[0] = min(b[0]+b[i], MaxUnits)
	}
	copy(b[1:], b[k+1:])
	clear(b[n-k:])
}

func mergeBuckets(a, b []int64, f func(a, b int64) int64) []int64 {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	for i := range a {
		a[i] = f(a[i], b[i])
	}
	return a
}

// fewBuckets is the number of buckets of a window by default.
const fewBuckets = arith.DefaultBuckets + 1

// spares is a pool of slices of the usual number of buckets: of many keys few have units
// under way at any time.
var spares = sync.Pool{New: func() any { return new([fewBuckets]int64) }}

// spareBuckets returns n empty buckets.
func spareBuckets(n int) []int64 {
	if n > fewBuckets {
		return make([]int64, n)
	}
	return spares.Get().(*[fewBuckets]int64)[:n]
}

// spareFor returns b, which may be nil, to the pool.
func spareFor(b []int64) {
	if cap(b) == fewBuckets {
		b = b[:fewBuckets]
		clear(b)
		spares.Put((*[fewBuckets]int64)(b))
	}
}
