package hybrid

import (
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// core is the reconciler. It decides what to send to Redis and when, and what a reply, an
// error or the passing of time changes. It is a single-threaded state machine: it has no
// goroutines, no clock and no source of randomness of its own, and step is its only entry.
// The driver (driver.go) gives it a goroutine, timers and Redis; the simulator in the tests
// gives it virtual ones.
//
// Exactly once: the units that a shard reports together are a flight, which has a sequence
// number. If no answer says what has become of a flight, the same flight is sent again
// under the same number, until Redis answers that it is booked. Only then is the next
// flight made. Redis keeps the number beside the data. By it Redis recognises a flight that
// is already booked, and data that was lost.
//
// There are two clocks, both in ns. Timers run on the timer clock, which is the system's.
// Checks are decided on the counter clock, which is the limiter's [Options].Clock.
type core struct {
	cfg   coreConfig
	rng   *rand.Rand
	ids   identities
	node  string // name of this node; it changes if another process is seen to use it
	link  *counter.Link
	keys  redisstore.Keyspace
	each  func(func(*counter.Counter) bool) // visits every live counter
	stats *counters

	now   int64 // time of this step on the timer clock
	local int64 // time of this step on the counter clock

	members    members
	shards     []shard
	servers    []*server
	nextServer int // index of the server that pump looks at first, so that each has its turn
	beats      heartbeats
	broken     quarantine
	wheel      *wheel // counters that report later
	flushes    []*flush
	activeAt   int64 // when checks last handed over counters

	notices notices

	pipes   map[uint64]*pipe
	overdue map[uint64]*load // pipelines that have timed out, and whose calls have not returned
	lastID  uint64

	state              State
	downAt             int64  // since when a server is down; 0: none is
	outageAt           int64  // since when the mode is not Synced because of an outage; 0: there was none
	lastReason         string // why the latest exchange failed
	lastErr            error  // the error behind it
	reasonChanged      bool   // an exchange has failed since the state was last reported
	deaf               string // why notices of other nodes do not arrive; empty: they do, or there are none
	mismatch           string // describes processes with another layout; empty: there are none
	reseedAt           int64  // when to send again what Redis has lost; 0: nothing is lost
	multipliersChanged bool   // the cost multiplier of shards has changed in this step

	out []effect
}

func (c *core) emit(e effect) { c.out = append(c.out, e) }

func (c *core) newID() uint64 {
	c.lastID++
	return c.lastID
}

// written returns the shards in which Redis keeps a record of this node under its present
// name. Records under an earlier name belong to another process.
func (c *core) written() (shards []int) {
	for i := range c.shards {
		if c.shards[i].seq > 0 && c.shards[i].node == c.node {
			shards = append(shards, i)
		}
	}
	return shards
}

// jitter returns d times a random factor from lo to hi.
func (c *core) jitter(d int64, lo, hi float64) int64 {
	return int64(float64(d) * (lo + (hi-lo)*c.rng.Float64()))
}

// happened reports an event.
func (c *core) happened(e Event) {
	e.Time = time.Unix(0, c.local)
	c.emit(efEvent{e})
}
