package remote

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The nodes of package hybrid rarely ask for a key that is used up, because they expect a notice
// when there is room again. So a caller who makes room without being a node publishes one, too.

// roomNode is the name of the sender in such notices. No node has it: their names are
// hexadecimal digits.
const roomNode = "remote"

// channelFor is how long a [Limiter] goes by what it knows of the channel for notices. It asks
// seldom, because calls without a channel should cost one round trip as a rule. A database that
// was emptied gets a new channel.
const channelFor = 2 * time.Second

// teller knows the channel for notices, or that there is none. The zero teller knows nothing yet.
type teller struct {
	name  atomic.Value // a string; "": there is none, or it cannot be used
	until atomic.Int64 // ns by the system's clock
}

// channel returns the name of the channel, "" if there is none. At most one caller at a time asks
// Redis; the others go by what was known.
func (te *teller) channel(ctx context.Context, store *redisstore.Store) string {
	now, until := int64(clock.System{}.Now()), te.until.Load()
	if now >= until && te.until.CompareAndSwap(until, now+int64(channelFor)) {
		// A pipeline with the call itself would save the round trip, but go-redis keeps
		// connections of their own for pipelines. The script cannot read the key, which may
		// be on another server of a Cluster.
		te.name.Store(store.Channel(ctx))
	}
	name, _ := te.name.Load().(string)
	return name
}

// tell tells the nodes of package hybrid that key has room since it was lowered. It changes
// nothing for the caller whether they hear it, and no node counts logs.
func (te *teller) tell(ctx context.Context, store *redisstore.Store, key string, rule *limit.Rule, done redisstore.Renewed) {
	if rule.Algorithm() == limit.AlgorithmSlidingLog {
		return
	}
	name := te.channel(ctx, store)
	if name == "" {
		return
	}
	keys := store.Keyspace()
	n := redisstore.Notice{
		ID: redisstore.NoticeIDOf(keys.CounterKey(rule, key)), Shard: keys.Shard(key), Shape: redisstore.ShapeOf(rule),
		Limit: rule.Limit(), Gen: done.State.Gen, Now: done.Now,
	}
	m := redisstore.Message{Channel: name, Payload: redisstore.AppendNotices(nil, roomNode, []redisstore.Notice{n})}
	if err := store.Publish(ctx, m); err != nil {
		te.name.Store("") // a missing permission must not cost each call a round trip
	}
}
