package algorithm

import (
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	_ State = (*LeakyBucket)(nil)
	_ State = (*Window)(nil)
	_ State = (*SlidingLog)(nil)
)

// New returns an empty state for a rule, nil for a leaky bucket: the zero [LeakyBucket] is
// empty. off is how far the authority's clock is ahead; sure: that was measured.
func New(r *limit.Rule, now, off int64, sure bool) State {
	switch r.Algorithm() {
	case limit.AlgorithmFunnel:
		return nil
	case limit.AlgorithmSlidingLog:
		return new(SlidingLog)
	}
	return NewWindow(arith.Of(r.Arith()), now, off, sure)
}

// IsWindow reports whether a rule counts by a [Window].
func IsWindow(r *limit.Rule) bool {
	a := r.Algorithm()
	return a == limit.AlgorithmSlidingWindow || a == limit.AlgorithmFixedWindow
}
