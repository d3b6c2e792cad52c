package hybrid

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

func newCore(cfg coreConfig, rng *rand.Rand, ids identities, link *counter.Link, keys redisstore.Keyspace, shards int,
	each func(func(*counter.Counter) bool), stats *counters) *core {
	c := &core{
		cfg: cfg, rng: rng, ids: ids, node: ids.name(), link: link, keys: keys, each: each, stats: stats,
		wheel: newWheel(cfg.interval, cfg.maxLag, rng.Int64N(cfg.interval)), activeAt: math.MinInt64 / 2,
		members: members{count: 1}, shards: make([]shard, shards), pipes: map[uint64]*pipe{}, overdue: map[uint64]*load{},
		state:   State{Mode: Resyncing, Reason: "starting", Nodes: 1},
		notices: notices{announced: map[counter.NoticeID]redisstore.Notice{}, byID: map[uint64]*counter.Counter{}},
	}
	common := newLoad(&cfg)
	for i := range c.shards {
		v := &server{shards: []int{i}, load: common}
		c.shards[i].server, c.shards[i].node, c.servers = v, c.node, append(c.servers, v)
	}
	if cfg.expectedNodes > 1 {
		c.expectNodes(cfg.expectedNodes)
	}
	link.SetFallback(cfg.fallback.multiplier(c.members.count))
	return c
}

// step handles one event. now is the time on the timer clock, localNow on the counter
// clock. The effects are valid until the next step.
func (c *core) step(now, localNow int64, ev event) []effect {
	c.now, c.local = max(now, c.now), max(localNow, c.local)
	c.link.SetLag(c.now - c.local)
	clear(c.out)
	c.out = c.out[:0]
	if c.state.Since.IsZero() {
		c.state.Since = time.Unix(0, c.local)
	}
	c.drain()
	switch ev := ev.(type) {
	case evTick:
	case evReplies:
		c.onReplies(ev)
	case evTimeout:
		c.onTimeout(ev.id)
	case evFreed:
		if v := c.overdue[ev.id]; v != nil {
			v.slots++
			delete(c.overdue, ev.id)
		}
	case evBeat:
		c.onBeat(ev)
	case evPublished:
		c.onPublished(ev.id, ev.err)
	case evHeard:
		c.onHeard(ev)
	case evRoom:
		c.announce(ev.notice)
	case evFlush:
		c.onFlush(ev)
	case evWithdraw:
		c.dropFlush(ev.id)
	}
	c.timers()
	c.assess() // twice: an outage that ends without a backlog is also reported as Resyncing
	c.checkReturned()
	c.assess()
	if c.multipliersChanged {
		c.applyWithoutShard()
	}
	c.pump()
	c.publish()
	c.checkFlushes()
	return c.out
}

// timers does what is due by now, except sending batches.
func (c *core) timers() {
	c.wheel.due(c.now, c.look)
	if c.beats.current == nil && c.now >= c.beats.next {
		c.sendBeat()
	}
	for _, k := range c.broken.release(c.now) {
		if k.Requeue() {
			c.enqueue(k, false)
		}
	}
	if c.reseedAt != 0 && c.now >= c.reseedAt {
		c.reseedNow()
	}
}

// wakeAt returns when the next step is due if no event comes before, and whether the driver
// may sleep until then without looking for counters (see [counter.Link.Sleep]).
func (c *core) wakeAt() (at int64, sleep bool) {
	at = c.now + c.cfg.heartbeat
	sooner := func(t int64) {
		if t != 0 {
			at = min(at, t)
		}
	}
	if c.beats.current == nil {
		sooner(c.beats.next)
	}
	if h := &c.notices; h.asked && len(h.announced) > 0 && h.publishing == 0 {
		sooner(max(h.mayPublishAt(), 1))
	}
	sooner(c.broken.next())
	sooner(c.reseedAt)
	sooner(c.wheel.next())
	sleep = c.now-c.activeAt >= c.cfg.interval
	for i := range c.shards {
		s := &c.shards[i]
		t, queued := s.due()
		sleep = sleep && !queued
		if s.pipe == 0 && s.server.load.free(s.missed) {
			sooner(t)
		}
	}
	if !sleep {
		sooner(c.wheel.after(c.now))
	}
	return at, sleep
}
