package sim

import (
	"cmp"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// Options are those of a world: what its limiters would be given.
type Options struct {
	SyncInterval, MaxLag, CommandTimeout      time.Duration
	HeartbeatInterval, MinBackoff, MaxBackoff time.Duration
	MaxDebt                                   time.Duration
	Shards, DegradeAfter, ExpectedNodes       int
	MaxBatch                                  int
	Fallback                                  reconcile.Fallback
	PollOnly                                  bool
}

// withDefaults returns o with the defaults of package hybrid in the fields that are zero.
func (o Options) withDefaults() Options {
	o.SyncInterval = cmp.Or(o.SyncInterval, 100*time.Millisecond)
	o.MaxLag = cmp.Or(o.MaxLag, max(time.Second, o.SyncInterval))
	o.CommandTimeout = cmp.Or(o.CommandTimeout, 250*time.Millisecond)
	o.HeartbeatInterval = cmp.Or(o.HeartbeatInterval, time.Second)
	o.MinBackoff = cmp.Or(o.MinBackoff, 100*time.Millisecond)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, max(2*time.Second, o.MinBackoff))
	o.DegradeAfter = cmp.Or(o.DegradeAfter, 2)
	o.Shards = cmp.Or(o.Shards, redisstore.DefaultShards)
	return o
}

func (o Options) pace() counter.Pace { return counter.Pace{Interval: o.SyncInterval, MaxLag: o.MaxLag} }

func (o Options) config() reconcile.Config {
	return reconcile.Config{
		SyncInterval: int64(o.SyncInterval), MaxLag: int64(o.MaxLag), CommandTimeout: int64(o.CommandTimeout),
		HeartbeatInterval: int64(o.HeartbeatInterval), MinBackoff: int64(o.MinBackoff), MaxBackoff: int64(o.MaxBackoff),
		DegradeAfter: o.DegradeAfter, ExpectedNodes: o.ExpectedNodes, MaxBatch: o.MaxBatch, Fallback: o.Fallback, Notices: !o.PollOnly,
	}
}
