package local

import (
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// DefaultMaxKeys is the number of keys kept if none is given.
	DefaultMaxKeys = 65_536
	// MaxMaxKeys bounds what may be asked for. At some 400 bytes a key it is
	// more memory than a machine has to spare for limiting.
	MaxMaxKeys = 1 << 26
)

// Options says how a [Limiter] is built. The zero Options is usable.
type Options struct {
	// MaxKeys is how many keys the cache keeps; 0 means [DefaultMaxKeys].
	// Keys that still matter and do not fit live in a side table of half that
	// number (at least 4,096), so that the whole is bounded too.
	MaxKeys int
	// Clock is asked for the time once per check, see package clock; nil means [clock.System].
	Clock clock.Clock
}

// TableOptions says how a [Table] is built. The zero TableOptions is usable.
type TableOptions struct {
	// MaxKeys is how many keys the cache keeps; 0 means [DefaultMaxKeys].
	MaxKeys int
	// Clock tells the table's own upkeep the time; nil means [clock.System].
	// It must be the clock whose readings are passed to the checks.
	Clock clock.Clock
	// Link ties the counters to a reconciler; nil: nothing is shared.
	Link *Link
	// Conflict is told of the first conflict of each name, see [TableStats].Conflicts: the
	// rule that was used, and the one that is. It is called under locks: it must neither
	// block nor ask the table. nil: nobody is.
	Conflict func(was, is *limit.Rule)

	// hash replaces the hash of a key, so that tests can make keys collide.
	hash func(key string, rule *limit.Rule) uint64
	// sideKeys replaces the capacity of the side table in tests.
	sideKeys int
}

// validate reports everything that is wrong.
func (o TableOptions) validate() error {
	var errs []error
	if o.MaxKeys < 0 || o.MaxKeys > MaxMaxKeys {
		errs = append(errs, fmt.Errorf("local: MaxKeys %d: must be 0 to %d", o.MaxKeys, MaxMaxKeys))
	}
	return errors.Join(errs...)
}

// withDefaults fills in what was left zero.
func (o TableOptions) withDefaults() TableOptions {
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	o.Clock = clock.Or(o.Clock)
	if o.sideKeys == 0 {
		o.sideKeys = max(minSideKeys, o.MaxKeys/2)
	}
	return o
}
