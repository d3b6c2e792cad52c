package arith

import "math/bits"

// How the oldest bucket of a sliding window leaves it.
//
// A window that ends at a time within the current bucket has left a part of its
// oldest bucket behind. Of that bucket only two things are known: how many units it
// has, and when in the bucket the last one came. Everybody who counts a window, here
// or in the scripts of internal/redisstore, takes as many of these units off as Gone says:
//
//   - all, once the last of them is a window old. So whoever takes the whole limit
//     once per window is never refused.
//   - before that those that came before the others, as if all had come at equal
//     distances up to the last, none at the very beginning of the bucket, and not further
//     apart than the units of a caller who always takes the whole limit. That is what a
//     steady load looks like.
//   - but never more than ⌈limit/buckets⌉ before the last: they may all have come
//     together with it.
//
// It follows that no window, wherever it begins, holds more than limit +
// ⌈limit/buckets⌉ units. For let a unit be admitted at t. The units that are less than
// a window old then are those of the newer buckets, which count in full, and some of
// the oldest one: none if its last unit is a window old, and else not more than
// ⌈limit/buckets⌉ above those that still count. What counts, with the new unit, is at
// most limit. Any window (a, a+W] that has a unit has a last one, at t, and lies within
// (t−W, t] as far as it has units. With one bucket the bound is twice the limit.
//
// Of interpolation alone, which is the usual way, neither half is true: if units come at
// once, at the end of a bucket, 1.99 limits pass in less than a window; and of a whole
// limit that came at its beginning most still counts a window later. The bound alone does
// not need the even distances; a steady load would be refused up to a tenth without them.
//
// A unit that is exactly a window old does not count any more, as in a sliding log.

// Gone returns how many units of the oldest bucket do not count any more when so much
// of the current bucket has passed. The bucket had so many units, and the last one
// came so long after it began. Both times are in ns.
func (r *Rule) Gone(units, last, passed int64) int64 {
	left := last - passed // until the last one is a window old
	if left <= 0 {
		return units
	}
	if units <= 0 {
		return 0
	}
	// Those that came within left before the last one.
	still := max(ratioUp(left, r.Limit, r.counted()), ratio(left, units-1, last)+1)
	return min(max(units-still, 0), r.Share)
}

// GoneAt returns how much of the current bucket has passed when at least n of the units
// of the oldest one do not count any more: the inverse of Gone. It is at most last.
func (r *Rule) GoneAt(units, n, last int64) (passed int64) {
	switch still := units - n; {
	case n <= 0:
		return 0
	case n > r.Share || still <= 0 || last == 0:
		return last
	default: // there are at least two units, and the limit is at least one
		return max(last-min(ratio(still, r.counted(), r.Limit), ratioUp(still, last, units-1)-1), 0)
	}
}

// AreGone reports whether Gone is at least n, without dividing.
func (r *Rule) AreGone(units, n, last, passed int64) bool {
	left, still := last-passed, units-n
	if n <= 0 || left <= 0 {
		return true
	}
	return n <= r.Share && still > 0 && atMost(left, r.Limit, still, r.counted()) && !atMost(still, last, left, units-1)
}

// counted returns the length of the window that is counted, in ns: that of its buckets.
func (r *Rule) counted() int64 { return int64(r.Width) * int64(r.Kept) }

// ratio returns a·b/c, rounded down. It saturates.
func ratio(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, 1<<63-1))
}

// atMost reports whether a·b is at most c·d.
func atMost(a, b, c, d int64) bool {
	h1, l1 := bits.Mul64(uint64(a), uint64(b))
	h2, l2 := bits.Mul64(uint64(c), uint64(d))
	return h1 < h2 || h1 == h2 && l1 <= l2
}

// ratioUp returns a·b/c, rounded up. One of a and b is at most c.
func ratioUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, rem := bits.Div64(hi, lo, uint64(c))
	if rem > 0 {
		q++
	}
	return int64(q)
}
