package remote

import (
	"context"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The nodes of package hybrid rarely ask for a key that is used up, because they expect a notice
// when there is room again. So a [Limiter], which is not a node, publishes one when it makes room.

// roomNode is the name of the sender in such notices. No node has this name: theirs are
// hexadecimal digits.
const roomNode = "remote"

// channelFor is how long a [Limiter] caches the name of the channel for notices, so that most
// calls without a channel cost one round trip. It is not cached for ever, because a database that
// was emptied gets a new channel.
const channelFor = 2 * time.Second

// channel returns the name of the channel, "" if there is none. At most one caller at a time asks
// Redis; the others use the cached name.
func (l *Limiter) channel(ctx context.Context) string {
	now, until := int64(clock.System{}.Now()), l.channelUntil.Load()
	if now >= until && l.channelUntil.CompareAndSwap(until, now+int64(channelFor)) {
		// A pipeline with the call itself would save the round trip, but go-redis keeps
		// separate connections for pipelines. The script of the call cannot read the name,
		// which may be on another server of a Cluster.
		l.channelName.Store(l.store.Channel(ctx))
	}
	name, _ := l.channelName.Load().(string)
	return name
}

// tellRoom publishes to the nodes of package hybrid that key has room since it was lowered. The
// caller's result does not depend on it. It skips logs, which no node counts.
func (l *Limiter) tellRoom(ctx context.Context, key string, rule *limit.Rule, done redisstore.Renewed) {
	if arith.Of(rule).Algorithm == arith.SlidingLog {
		return
	}
	name := l.channel(ctx)
	if name == "" {
		return
	}
	n := l.store.Keyspace().RoomNotice(rule, key, done)
	m := redisstore.Message{Channel: name, Payload: redisstore.AppendNotices(nil, roomNode, []report.Notice{n}), Via: n.Shard}
	if err := l.store.Publish(ctx, m); err != nil {
		l.channelName.Store("") // a missing permission must not cost each call a round trip
	}
}
