package local

import "github.com/hybridlimit/hybridlimit/clock"

// Options says how a [Limiter] is built. The zero Options is usable.
type Options struct {
	// MaxKeys is how many keys are kept, up to 1<<26; 0 means 65,536. There is
	// room for a quarter more, at least 4,096 more, because it is decided in the background
	// which keys stay. A key takes some 320 bytes, a sliding window more.
	MaxKeys int
	// MaxRemembered is of how many keys that had to leave memory the limiter remembers what they have
	// used, as long as it counts: 16 bytes for each, allocated as they come. 0 means 32 times MaxKeys;
	// at most 1<<30. Above that, keys that have used the smallest share of their limit are forgotten
	// first.
	MaxRemembered int
	// Clock is asked for the time once per check, see package clock; nil means [clock.System].
	Clock clock.Clock
}
