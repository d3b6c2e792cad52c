package algorithm

import "github.com/hybridlimit/hybridlimit/limit"

var (
	_ State = (*LeakyBucket)(nil)
	_ State = (*Window)(nil)
	_ State = (*SlidingLog)(nil)
)

// IsWindow reports whether a rule counts by a [Window].
func IsWindow(r *limit.Rule) bool {
	a := r.Algorithm()
	return a == limit.AlgorithmSlidingWindow || a == limit.AlgorithmFixedWindow
}
