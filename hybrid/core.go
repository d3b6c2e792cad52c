package hybrid

import (
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
)

// core is the reconciler: it decides what to send and when, and what a reply,
// an error or the passing of time changes. It is a single-threaded state
// machine without goroutines, clocks or sources of chance of its own; step is
// its only entry. The driver (driver.go) gives it a goroutine, timers and
// Redis; a simulator gives it virtual ones.
//
// Exactly once: the units that a shard has sent form a flight under one
// sequence number. A flight whose fate is unknown is sent again, the same,
// under the same number, until Redis says that it has booked it; only then is
// the next one made. Redis keeps the number beside the data and so notices
// both a flight that it knows and data that it has lost.
type core struct {
	cfg   coreConfig
	rng   *rand.Rand
	ids   identities
	node  string // our name, until somebody else is seen to use it
	link  *table.Link
	keys  redisstore.Keyspace
	each  func(func(*table.Counter) bool) // visits every live counter
	stats *counters

	now   int64 // pace: what timers run on, ns
	local int64 // the counters' time, ns

	state          State
	members        members
	shards         []shard
	servers        []*server
	nextServer     int  // server to look at first, so that all get their turn
	weightsChanged bool // shards have changed what a unit weighs
	pipes          map[uint64]*pipe
	overdue        map[uint64]*load // pipelines that have timed out, and whose calls have not ended
	lastID         uint64
	downAt         int64 // since when a server is down; 0: none is
	// Since when not all was well: a server that returns may fail again at once.
	outageAt      int64
	lastReason    string // why the latest exchange failed, and its error
	lastErr       error
	mismatch      string // says that others use another layout, which is not shared
	reasonChanged bool   // these have changed
	beats         heartbeats
	reseed        int64 // when to tell Redis anew what it has lost; 0: nothing lost
	broken        quarantine
	flushes       []*flush
	wheel         *wheel
	activeAt      int64 // when counters were handed over last

	out []effect
}

func (c *core) emit(e effect) { c.out = append(c.out, e) }

func (c *core) newID() uint64 {
	c.lastID++
	return c.lastID
}

// written returns the shards in which Redis keeps a record of this node, under the
// name that it has now: that under an earlier one is somebody else's.
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

// happened tells of an event.
func (c *core) happened(e Event) {
	e.Time = time.Unix(0, c.local)
	c.emit(efEvent{e})
}
