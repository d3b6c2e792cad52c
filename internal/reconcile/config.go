package reconcile

import (
	"cmp"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// Config is what a user chooses. Its fields are those of package hybrid's options.
type Config struct {
	SyncInterval, MaxLag, CommandTimeout      time.Duration
	HeartbeatInterval, MinBackoff, MaxBackoff time.Duration
	DegradeAfter, ExpectedNodes               int
	MaxBatch                                  int // 0: depends on how far away the server is
	Fallback                                  Fallback
	Notices                                   bool // nodes notify each other of keys that are used up
	Single                                    bool // all pipelines go to one server, so that they may carry notices
}

// defaultBatch is the default of MaxBatch for a server that is nearby.
const defaultBatch = 200

// coalesce is how long an urgent report waits for others.
const coalesce = time.Millisecond

// settings returns what follows from c.
func (c Config) settings() settings {
	return settings{
		interval: int64(c.SyncInterval), maxLag: int64(c.MaxLag), heartbeat: int64(c.HeartbeatInterval), linger: int64(coalesce),
		minBackoff: int64(c.MinBackoff), maxBackoff: int64(c.MaxBackoff),
		retry: int64(30 * time.Millisecond), quarantine: int64(5 * time.Second),
		timeout: int64(c.CommandTimeout), maxBatch: cmp.Or(c.MaxBatch, defaultBatch), farBatch: cmp.Or(c.MaxBatch, redisstore.MaxOps),
		maxPipes: 4, shardsPerPipe: 16, resyncPipe: 4,
		degradeAfter: c.DegradeAfter, fallback: c.Fallback, expectedNodes: int64(c.ExpectedNodes), notices: c.Notices, single: c.Single,
		resyncPaceMin: int64(5 * time.Millisecond), resyncRange: int64(20 * time.Millisecond),
	}
}

// settings are the parameters of a machine. All times are in ns.
type settings struct {
	interval, maxLag           int64 // SyncInterval, MaxLag
	heartbeat                  int64 // between two heartbeats
	linger                     int64 // how long an urgent report waits for others
	minBackoff, maxBackoff     int64 // between two probes
	retry                      int64 // before a failed flight is sent again, on average
	quarantine                 int64 // before a broken key is tried again
	timeout                    int64 // of an exchange
	maxBatch, farBatch         int   // keys in a flight, and in one to a server that is far away
	maxPipes                   int   // pipelines under way to a server
	shardsPerPipe, resyncPipe  int   // shards in a pipeline, and in one after an outage
	degradeAfter               int   // rounds of failed exchanges
	expectedNodes              int64
	notices                    bool // nodes notify each other of keys that are used up
	single                     bool // all pipelines go to one server, so that they may carry notices
	fallback                   Fallback
	resyncPaceMin, resyncRange int64 // pause between pipelines after an outage: a random time from min to min + range
}
