package hybrid

import (
	"cmp"
	"maps"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// This file is how the core hears notices.

// noteChannel applies what a heartbeat has said of the channel.
func (c *core) noteChannel(b redisstore.Beat) {
	h := &c.notices
	if !c.cfg.notices {
		return
	}
	h.asked = true
	if h.muted = b.EchoErr; h.muted != nil {
		h.silent = 0
	}
	if b.Channel != h.channel || h.confirmed && h.silent >= echoesMissed {
		h.channel, h.confirmed, h.silent = b.Channel, false, 0
		c.emit(efListen{channel: h.channel, node: c.node})
	}
	c.noteHearing()
	c.sweepNotices()
}

// noteHearing makes known whether the notices of other nodes arrive.
func (c *core) noteHearing() {
	h := &c.notices
	on := h.hears()
	if on || c.state.Mode != Synced {
		h.since = c.now
	}
	c.link.SetHearing(on) // the wheel looks at keys that refuse within a lag
	reason := ""
	switch {
	case on && h.muted == nil || c.now-h.since < deafAfter*c.cfg.heartbeat && h.muted == nil:
	case h.muted != nil:
		_, reason = redisstore.Classify(h.muted)
	case h.err != nil:
		_, reason = redisstore.Classify(h.err)
	case h.channel == "":
		reason = "no channel"
	default:
		reason = "silent"
	}
	if reason == c.deaf {
		return
	}
	if c.deaf = reason; reason != "" {
		c.happened(Event{Kind: EventDeaf, Reason: "notices of other nodes do not arrive: " + reason, Err: plain(cmp.Or(h.muted, h.err))})
	}
}

// onHeard handles what the subscription has brought.
func (c *core) onHeard(ev evHeard) {
	h := &c.notices
	if ev.err != nil {
		h.confirmed, h.err = false, ev.err
	}
	if ev.confirmed {
		h.confirmed, h.silent, h.echoed, h.err = true, 0, h.echo, nil
	}
	h.echoed = max(h.echoed, ev.echo)
	for _, m := range ev.messages {
		if m.node == c.node {
			continue
		}
		c.spend()
		for i := range m.notices {
			c.hear(&m.notices[i])
		}
	}
	c.noteHearing()
}

// hear takes in one notice.
func (c *core) hear(n *redisstore.Notice) {
	if n.Shard < 0 || n.Shard >= len(c.shards) || !c.shards[n.Shard].healthy() {
		return
	}
	clock := &c.shards[n.Shard].server.offset
	server := c.local + clock.ns
	ahead := int64(n.Now) > server+clock.grown(c.local)+int64(aheadMost)
	if !clock.known || ahead || n.Until != 0 && int64(n.Until) <= server {
		return
	}
	c.stats.heard.Add(1)
	id := counter.NoticeID(n.ID)
	is := counter.Notice{Shape: n.Shape, Limit: n.Limit, Gen: n.Gen, Now: int64(n.Now), Until: int64(n.Until)}
	if !c.link.Keep(id, is, c.local) {
		return
	}
	k := c.notices.byID[idPrefix(id)]
	switch {
	case k == nil:
	case k.Dropped():
		delete(c.notices.byID, idPrefix(id))
	case k.ID() == id && k.Hear(c.local, is):
		c.enqueue(k, false)
	}
}

// sweepNotices drops what is over.
func (c *core) sweepNotices() {
	h := &c.notices
	if c.link.Kept() > 0 {
		clock := &c.shards[0].server.offset
		server := c.local + clock.ns
		c.link.SweepNotices(func(n counter.Notice) bool {
			return max(n.Until, n.Now+int64(time.Minute)) < server
		})
	}
	if len(h.byID) > h.kept*5/4+1024 { // dead counters are not to stay in memory for long
		maps.DeleteFunc(h.byID, func(_ uint64, k *counter.Counter) bool { return k.Dropped() })
		h.kept = len(h.byID)
	}
}

// aheadMost is by how much a notice may be ahead of Redis' clock as far as it is known, besides
// the error of that.
const aheadMost = 20 * time.Millisecond
