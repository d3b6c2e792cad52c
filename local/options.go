package local

import "github.com/hybridlimit/hybridlimit/clock"

// DefaultMaxKeys is the number of keys kept if none is given.
const DefaultMaxKeys = 65_536

// Options says how a [Limiter] is built. The zero Options is usable.
type Options struct {
	// MaxKeys is how many keys are kept, up to 1<<26; 0 means [DefaultMaxKeys]. There is
	// room for a quarter more, at least 4,096 more, because it is decided in the background
	// which keys stay. A key takes some 320 bytes, a sliding window more.
	MaxKeys int
	// Clock is asked for the time once per check, see package clock; nil means [clock.System].
	Clock clock.Clock
}
