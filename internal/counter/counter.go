package counter

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Counter counts one key under one rule. Build it with [New]. All methods are
// safe for concurrent use, unless they say otherwise.
//
// It does what a lease cannot: merge an answer of the authority, roll a window, reserve,
// change the rule. A check that a lease decides does not read the counter, but the
// first after a report, which queues it.
//
// What it counts lies behind it in memory, see state. There may be millions of counters: no
// field is larger than it must be.
type Counter struct {
	latestRule atomic.Pointer[limit.Rule] // written under mu
	hash       uint64                     // immutable
	part       *Part                      // immutable: part of the link for the counter's shard; nil: nothing is shared
	group      *Group                     // immutable; nil: grants no leases
	key        string                     // immutable, see KeyOf
	hashed     bool                       // immutable: key is a sum
	counts     kind                       // immutable
	flags      flags                      // written under mu
	urgentAt   uint32                     // pending units that make a report urgent

	mu         sync.Mutex // protects all fields without another note
	modeBits   int32      // mode of the link, as seen last
	lateMicros uint32     // see lateLocked, µs
	seen       uint16     // units that the lease had admitted at the last Offer
	granted    uint16     // units of the lease when granted; unitsRefused: a refusal; 0: no lease
	counted    uint16     // units of the lease that the group has counted already
	dead       bool
	asked      bool // the counter itself was asked since the last Offer, or a lease that ended

	entry        *Entry // nil: none. Written under the lock of the index as well
	refusesUntil int64  // ns; 0: not known to refuse. Valid until c is locked again
	last         int64  // latest now seen: time never runs backwards in a counter

	// State of the exchange with the authority.
	freshAt                int64    // when the authority last answered, ns; before that, when c was made
	since                  int64    // when the oldest unit was admitted that the authority has not acknowledged, ns; 0: there is none
	born                   int64    // when the newest unit that it knows was booked, by its clock; noAnswer: it has not answered yet
	nextNormal, nextUrgent *Counter // owned by the stacks of the link

	history     *history     // nil: none
	notice      *heardNotice // what another node has said; nil: nothing
	lingerUntil int64        // see lingerLocked, ns; 0: an urgent report does not wait
}

// noAnswer is the value of born before the first answer of the authority.
const noAnswer = -1

// history is what few keys have: resets, bookings, and clocks that stood still. It is dropped
// when nothing in it matters any more.
type history struct {
	gen       int64      // generation of the authority's state
	serverNow int64      // the authority's clock at its last answer
	witness   int64      // ns; until then views from before a reset that was made here could matter
	backGen   int64      // gen when the oldest units were handed back that the authority has not acknowledged
	clockGap  int64      // see currentClockGap, at the last answer for a leaky bucket
	saidAt    int64      // ns; when the other nodes were last told to ask because units are booked ahead
	resets    uint32     // how often this counter was reset or set
	booked    []*Booking // of a leaky bucket, by due

	keepUntil int64 // ns; nothing is dropped before
}

// Rule returns the rule that c counts by: the latest that it was asked under.
func (c *Counter) Rule() *limit.Rule { return c.latestRule.Load() }

// Hash returns the hash that c was made with.
func (c *Counter) Hash() uint64 { return c.hash }

func (c *Counter) rule() *arith.Rule    { return arith.Of(c.latestRule.Load().Arith()) }
func (c *Counter) alg() limit.Algorithm { return c.latestRule.Load().Algorithm() }
func (c *Counter) name() string         { return c.rule().Name }

// link returns the link to the reconciler, nil if nothing is shared.
func (c *Counter) link() *Link {
	if c.part == nil {
		return nil
	}
	return c.part.link
}

// IsShared reports whether c has a link.
func (c *Counter) IsShared() bool { return c.link() != nil }

func (c *Counter) mode() int64     { return int64(c.modeBits) }
func (c *Counter) setMode(m int64) { c.modeBits = int32(m) }

// setUrgentAt sets how many pending units make a report urgent: at least 1. It is capped at
// 1<<32 − 1: with so many units a report too many does not matter.
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

// flags are the state of a counter towards the reconciler, the index and its lease. They are
// written under the lock of the counter.
type flags uint16

const (
	outdated     flags = 1 << iota // the view is to be fetched again, however fresh it is
	inNormal                       // in the normal queue of the reconciler, not collected yet
	inUrgent                       // in its urgent queue
	inFlight                       // units (or a question) were sent and are not acknowledged
	raising                        // the authority has lost what we know
	quarantined                    // the authority's copy of the key is broken
	retryPlanned                   // quarantined, and due to be asked again
	voided                         // what is in flight was sent before a reset that we know of
	denied                         // the latest check was refused by what the authority has answered
	byNotice                       // the refusal that is about to be granted rests on a notice
	hurried                        // the next urgent report does not linger: other nodes may begin at the same instant
	pressing                       // urgent, and twice as many units wait as make a report urgent
	listed                         // in the urgent queue of the reconciler, and counted there once
	stacked                        // in the urgent stack of the link: the reconciler has not seen it yet
	held                           // the policy holds it
	revoked                        // there is no lease until the counter itself is asked, see Revoke
)

// MaxKey is the length, in bytes, of the longest key that a counter keeps as it is, so that
// what a key takes has a bound. It is that of the names in Redis.
const MaxKey = 256

// sumOf returns the SHA-256 sum of a key in hexadecimal digits.
func sumOf(key string) (s [2 * sha256.Size]byte) {
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(key), len(key))) // is only read: no copy
	hex.Encode(s[:], sum[:])
	return s
}

// KeyOf returns what a counter keeps of a key: the key, or its sum if it is longer than MaxKey.
func KeyOf(key string) (kept string, hashed bool) {
	if len(key) <= MaxKey {
		return key, false
	}
	s := sumOf(key)
	return string(s[:]), true
}

// hasKey reports whether key is the key of c. A key that looks like a sum is not taken for it.
// It allocates nothing.
func (c *Counter) hasKey(key string) bool {
	if hashed := len(key) > MaxKey; !hashed || !c.hashed {
		return hashed == c.hashed && key == c.key
	}
	s := sumOf(key)
	return string(s[:]) == c.key
}

// Key returns the key, or its sum, see [KeyOf].
func (c *Counter) Key() string { return c.key }

// IsHashed reports whether c keeps the sum of its key.
func (c *Counter) IsHashed() bool { return c.hashed }
