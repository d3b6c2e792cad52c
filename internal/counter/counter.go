package counter

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Counter counts one key under one rule. Build it with [New]. All methods are safe for concurrent
// use, unless they say otherwise.
//
// It does what a lease cannot: apply an answer of Redis, move a window on, reserve, change the
// rule. A check that a lease decides does not read the counter. The exception is the first check
// after a report, which queues the counter.
//
// What it counts follows it in memory, see state. There may be millions of counters, so each field
// is as small as possible.
type Counter struct {
	latestRule atomic.Pointer[limit.Rule] // written under mu
	hash       uint64                     // immutable
	part       *Part                      // immutable: part of the link for the key; nil: nothing is shared
	group      *Group                     // immutable
	key        string                     // immutable, see KeyOf
	hashed     bool                       // immutable: key is a hash sum
	counts     kind                       // immutable
	flags      flags                      // written under mu
	urgentAt   uint32                     // number of pending units that makes a report urgent

	mu         sync.Mutex // protects all fields without another note
	modeBits   int32      // mode of the link when it was last read
	lateMicros uint32     // see lateLocked, µs
	seen       uint16     // units that the lease had admitted at the last Offer
	granted    uint16     // units of the lease at the grant; unitsRefused: a refusal; 0: no lease
	counted    uint16     // units of the lease that the group has counted already
	dead       bool
	asked      bool // since the last Offer, the counter itself or a lease that has ended was asked

	entry        *Entry // nil: none. Written under the lock of the index as well
	refusesUntil int64  // ns; 0: not known to refuse. Valid until c is locked again
	last         int64  // latest time seen, ns: time never runs backwards in a counter

	// State of the exchange with Redis.
	freshAt int64 // when Redis last answered, ns; before the first answer, when c was made
	since   int64 // when the oldest unacknowledged unit was admitted, ns; 0: none
	born    int64 // when Redis booked the newest unit, by its clock; negative: no answer yet

	history     *history        // nil: none
	notice      *receivedNotice // from another node; nil: none
	lingerUntil int64           // see lingerLocked, ns; 0: an urgent report does not wait
}

// The values of born before the first answer of Redis: nothing is known, or what was remembered, see
// Resume.
const (
	noAnswer = -1
	recalled = -2
)

// isAnsweredLocked reports whether Redis has answered.
func (c *Counter) isAnsweredLocked() bool { return c.born >= 0 }

// Rule returns the rule that c counts by: that of the latest call.
func (c *Counter) Rule() *limit.Rule { return c.latestRule.Load() }

// Hash returns the hash that c was made with.
func (c *Counter) Hash() uint64 { return c.hash }

func (c *Counter) rule() *arith.Rule { return arith.Of(c.latestRule.Load()) }

// link returns the link to the reconciler, nil if nothing is shared.
func (c *Counter) link() *Link {
	if c.part == nil {
		return nil
	}
	return c.part.link
}

func (c *Counter) mode() int64     { return int64(c.modeBits) }
func (c *Counter) setMode(m int64) { c.modeBits = int32(m) }

// setUrgentAt sets how many pending units make a report urgent: at least 1. It is capped at the
// largest uint32: with so many units, one report too many does not matter.
func (c *Counter) setUrgentAt(n int64) { c.urgentAt = uint32(min(max(n, 1), math.MaxUint32)) }

func (c *Counter) is(f flags) bool { return c.flags&f != 0 }
func (c *Counter) mark(f flags)    { c.flags |= f }
func (c *Counter) unmark(f flags)  { c.flags &^= f }

func (c *Counter) note(f flags, on bool) {
	if on {
		c.mark(f)
	} else {
		c.unmark(f)
	}
}

// flags are the state of a counter in relation to the reconciler, the index and its lease. They are
// written under the lock of the counter.
type flags uint16

const (
	outdated     flags = 1 << iota // the view must be fetched again, even if it is fresh
	inNormal                       // in the normal queue of the reconciler, not collected yet
	inUrgent                       // in its urgent queue
	inFlight                       // a report, with or without units, was sent and is not acknowledged
	restoring                      // Redis has lost what this node knows: the next report restores it
	quarantined                    // Redis' copy of the key is broken
	retryPlanned                   // quarantined, and a new attempt is planned
	voided                         // what is in flight was sent before a reset that this node knows of
	denied                         // the latest check was refused by what Redis has answered
	hurried                        // the next urgent report does not linger: other nodes may start at the same instant
	held                           // the policy of the index holds it
	revoked                        // no lease is granted before the next call of the counter, see Revoke

	doublings = iota // the bits from here on: see doublingsOf, when c was last put into the urgent queue
)

// MaxKey is the length, in bytes, of the longest key that a counter keeps as it is, so that the
// memory of a key is bounded. Names in Redis have the same bound.
const MaxKey = 256

// sumOf returns the SHA-256 sum of a key in hexadecimal digits.
func sumOf(key string) (s [2 * sha256.Size]byte) {
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(key), len(key))) // only read, so no copy is needed
	hex.Encode(s[:], sum[:])
	return s
}

// KeyOf returns what a counter keeps of a key: the key, or its hash sum if it is longer than
// MaxKey.
func KeyOf(key string) (kept string, hashed bool) {
	if len(key) <= MaxKey {
		return key, false
	}
	s := sumOf(key)
	return string(s[:]), true
}

// hasKey reports whether key is the key of c. A short key with the text of a hash sum is not taken
// for the long key with that sum. It allocates nothing.
func (c *Counter) hasKey(key string) bool {
	if hashed := len(key) > MaxKey; !hashed || !c.hashed {
		return hashed == c.hashed && key == c.key
	}
	s := sumOf(key)
	return string(s[:]) == c.key
}

// Key returns the key, or its hash sum, see [KeyOf].
func (c *Counter) Key() string { return c.key }

// Stored returns the key as c keeps it.
func (c *Counter) Stored() report.StoredKey { return report.StoredKey{Text: c.key, Hashed: c.hashed} }
