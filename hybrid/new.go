package hybrid

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
)

// New returns a running limiter that shares its limits through rdb, a client of one server,
// a Sentinel group or a Cluster. It does not wait for Redis: a limiter that is made while
// Redis is unreachable works, degraded. With a nil rdb the limiter shares nothing. The
// limiter never closes or reconfigures rdb.
//
// For bad options it returns one error that names each of them. Settings of the client with
// which deadlines do not hold, or commands are repeated, are reported as events
// ([EventClient]); see [RedisOptions].
func New(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	l, err := build(rdb, o)
	if err == nil && l.driver != nil {
		l.driver.begin()
	}
	return l, err
}

// build returns a limiter that does not run yet.
func build(rdb redis.UniversalClient, o Options) (*Limiter, error) {
	if o.Shards == 0 {
		o.Shards = redisstore.ShardsFor(rdb)
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	l := &Limiter{clock: clocks.Forward(o.Clock), patience: 2 * o.SyncInterval}
	var store *redisstore.Store
	var err error
	if rdb != nil {
		store, err = redisstore.NewStore(rdb, redisstore.Options{KeyPrefix: o.KeyPrefix, Shards: o.Shards, CommandTimeout: redisstore.MostPatience * o.CommandTimeout})
		if err != nil {
			return nil, fmt.Errorf("hybrid: %w", err)
		}
		ks := store.Keyspace()
		l.link = counter.NewLink(counter.Pace{Interval: o.SyncInterval, MaxLag: o.MaxLag}, o.Shards, ks.Shard)
		l.link.SetMaxDebt(o.MaxDebt)
		if !o.PollOnly {
			l.link.SetNotices(o.MaxKeys, ks.NoticeID)
		}
	}
	l.notify = newNotifier(o, view{l}.Figures, func() { l.stats.HookPanics.Add(1) })
	l.table, err = table.New(table.Options{MaxKeys: o.MaxKeys, MaxRemembered: o.MaxRemembered, Clock: o.Clock, Link: l.link, MaxDebt: o.MaxDebt, Tallies: &l.tally, Conflict: l.conflict, Rebuilt: l.rebuilt, Crowded: l.crowded})
	if err != nil {
		return nil, fmt.Errorf("hybrid: %w", err)
	}
	if rdb == nil {
		go l.notify.run()
		return l, nil
	}
	l.driver = newDriver(rdb, store, o, l)
	for _, fault := range faultsOf(rdb, o.CommandTimeout) {
		l.notify.happened(Event{Kind: EventClient, Time: time.Unix(0, l.now()), Reason: fault})
	}
	return l, nil
}

// systemIdentities returns identities from the operating system.
func systemIdentities() reconcile.Identities {
	return reconcile.Identities{
		Name: func() string {
			var b [12]byte
			_, _ = rand.Read(b[:]) // never fails: the runtime would crash first
			return hex.EncodeToString(b[:])
		},
		Nonce: func() uint64 {
			var b [8]byte
			_, _ = rand.Read(b[:])
			return binary.BigEndian.Uint64(b[:])
		},
	}
}
