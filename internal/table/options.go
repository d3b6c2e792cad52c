package table

import (
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/tally"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// DefaultMaxKeys is the number of keys kept if [Options].MaxKeys is 0.
	DefaultMaxKeys = 65_536
	// MaxMaxKeys is the largest allowed [Options].MaxKeys. At some 320 bytes a key this is more
	// memory than a machine has free for a rate limiter.
	MaxMaxKeys = 1 << 26
	// rememberedPerKey is the default of [Options].MaxRemembered for each key of MaxKeys.
	rememberedPerKey = 32
	// MaxMaxRemembered is the largest allowed [Options].MaxRemembered: 16 GB.
	MaxMaxRemembered = 1 << 30
)

// Options configures a [Table]. The zero Options is usable.
type Options struct {
	// MaxKeys is how many keys are kept; 0 means [DefaultMaxKeys]. There is room for a quarter
	// more, at least 4,096 more, because a goroutine in the background decides which keys are kept.
	MaxKeys int
	// MaxRemembered is of how many keys that had to leave is remembered what they have used, 16 bytes
	// each, allocated as they come; 0 means 32 times MaxKeys. It is rounded up to a power of two for
	// each shard of the index.
	MaxRemembered int
	// Clock is the clock of the sweep; nil means [clock.System]. It must be the clock whose
	// readings are passed to the checks.
	Clock clock.Clock
	// Link connects the counters to a reconciler; nil: nothing is shared.
	Link *counter.Link
	// MaxDebt bounds what can be charged above the capacity of a leaky bucket, see
	// [counter.Link.SetMaxDebt]. It must be that of the link, if there is one.
	MaxDebt time.Duration
	// Tallies counts the units that leases have admitted, each as a decision for one unit. The
	// caller must count all other decisions. nil: they are not counted.
	Tallies *tally.Tallies
	// Conflict is called for the first conflict of each name, see [Stats].Conflicts, with the rule
	// that was used before and the one that is used now. It may be called under locks: it must
	// neither block nor call the table. nil: it is not called.
	Conflict func(was, is *limit.Rule)
	// Rebuilt is called in the same way, once for a name, when its rule has been built anew many times.
	Rebuilt func(rule *limit.Rule)
	// Crowded is called, at most once in [crowdedEvery], when keys were displaced or units lost since the
	// last call, or when half of MaxRemembered is taken. It is called by the goroutine of the sweep, which
	// it must not block. nil: it is not called.
	Crowded func(Stats)

	// hash replaces the hash of a key, so that tests can make keys collide.
	hash func(key string, rule *limit.Rule) uint64
	// slack replaces the room above MaxKeys, in tests.
	slack int
}

// withDefaults sets the fields that are zero.
func (o Options) withDefaults() Options {
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.MaxRemembered == 0 {
		o.MaxRemembered = int(min(rememberedPerKey*int64(o.MaxKeys), MaxMaxRemembered))
	}
	o.Clock = clocks.Or(o.Clock)
	if o.slack == 0 {
		o.slack = max(minSlack, o.MaxKeys/4)
	}
	return o
}
