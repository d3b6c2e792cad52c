package reconcile

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// A node that learns from Redis that its report has used up a key says so to all others at once, on a
// channel. A notice is a hint: it refuses until the key has room again or Redis has answered, and
// nothing else leans on it.

const (
	// maxDeliveries bounds the messages that Redis delivers: so many a second to all nodes
	// together. A delivery takes it about 5 µs of processor time.
	maxDeliveries = 20_000
	// maxAnnounced bounds the notices that wait to be published. When there are so many a quarter is
	// dropped.
	maxAnnounced = 4_000
	// echoesMissed is after how many heartbeats in a row whose echo was not heard the
	// subscription counts as broken.
	echoesMissed = 2
	// deafAfter is after how many heartbeats without a subscription that is said.
	deafAfter = 3
)

// notices is what a node has to say to the others, and whether it hears them.
type notices struct {
	channel   string // id of the channel; empty: not known
	asked     bool   // a heartbeat has said what the channel is, or that there is none
	confirmed bool   // the subscription is
	silent    int    // heartbeats in a row whose echo was not heard
	echo      uint64 // number of the latest
	echoed    uint64 // the latest that was heard
	since     int64  // when the subscription was last in order, on the timer clock
	err       error  // why it is not; nil: not known
	muted     error  // why nothing can be published; nil: it can

	announced  map[counter.NoticeID]redisstore.Notice // to be published
	room       bool                                   // some of them say that there is room: these do not wait
	publishing uint64                                 // id of the call that publishes; 0: none
	publishAt  int64                                  // nothing is published before, unless there is room
	spent      int64                                  // until when the messages heard and sent use up what Redis may deliver, on the timer clock

	byID map[uint64]*counter.Counter // by the first bytes of the ID; all that Redis has answered for
	kept int                         // how many of them were alive at the last look
}

// message is what a node has published at once.
type Message struct {
	Node    string
	Notices []redisstore.Notice
}

// hears reports whether the notices of other nodes arrive.
func (h *notices) hears() bool { return h.confirmed && h.silent < echoesMissed }

// beatsWith notes that a heartbeat is sent, and returns the number of its echo.
func (h *notices) beatsWith() uint64 {
	if h.confirmed && h.echoed < h.echo {
		h.silent++
	} else {
		h.silent = 0
	}
	h.echo++
	return h.echo
}

// inOrder returns what is to be published: first that there is room, then the longest waits.
func (h *notices) inOrder() []redisstore.Notice {
	return slices.SortedFunc(maps.Values(h.announced), func(a, b redisstore.Notice) int {
		if (a.Until == 0) != (b.Until == 0) {
			return cmp.Compare(a.Until, b.Until)
		}
		return cmp.Or(cmp.Compare(b.Until, a.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
}

// mayPublishAt returns when the deliveries of the last second are few enough for another message.
func (h *notices) mayPublishAt() int64 { return max(h.spent-int64(time.Second), h.publishAt) }

// idPrefix returns the part of an ID by which counters are looked up. Counters that share it are
// rare, and lose no more than notices.
func idPrefix(id counter.NoticeID) uint64 { return binary.BigEndian.Uint64(id[:]) }

// This file is how the core publishes notices.

// settled notes what has come of an answer whose exchange began at sent: a counter that others may
// speak of, or what they are to hear. A notice may overtake the first answer, which comes by
// another connection.
func (c *Machine) settled(ctr *counter.Counter, o counter.Outcome, sent int64) {
	if !c.cfg.notices || !o.First && o.Notice == nil && !o.Forget {
		return
	}
	id := ctr.ID()
	if o.Forget {
		c.link.Forget(id)
	}
	if o.First {
		c.notices.byID[idPrefix(id)] = ctr
		if n, ok := c.link.Missed(id, sent); ok && ctr.Hear(c.local, n) {
			c.enqueue(ctr, false)
		}
	}
	if n := o.Notice; n != nil {
		c.announce(redisstore.Notice{
			ID: redisstore.NoticeID(id), Shard: ctr.Shard(), Shape: n.Shape, Limit: n.Limit,
			Gen: n.Gen, Now: time.Duration(n.Now), Until: time.Duration(n.Until),
		})
	}
}

// announce has a notice published. If too many wait, those that end soonest are dropped.
func (c *Machine) announce(n redisstore.Notice) {
	h := &c.notices
	if !c.cfg.notices || h.channel == "" && h.asked || h.muted != nil {
		return
	}
	if n.Until == 0 {
		h.room = true
	} else if c.now < h.mayPublishAt() {
		c.stats.KeptBack.Add(1)
	}
	h.announced[counter.NoticeID(n.ID)] = n
	if len(h.announced) >= maxAnnounced {
		for _, n := range h.inOrder()[maxAnnounced*3/4:] {
			delete(h.announced, counter.NoticeID(n.ID))
		}
	}
}

// delivery is what a message to all nodes takes of the budget, in ns.
func (c *Machine) delivery() int64 { return c.members.count * int64(time.Second) / maxDeliveries }

// spend notes a message that Redis delivers to all nodes. More than two messages of each node above
// the budget are not counted: a flood of what does not wait for it is over when it ends.
func (c *Machine) spend() {
	most := c.now + int64(time.Second) + 2*c.members.count*c.delivery()
	c.notices.spent = min(max(c.notices.spent, c.now)+c.delivery(), most)
}

// publish sends what was announced, in the pipeline that leaves anyway or by itself. All nodes
// hear all messages, and wait when there are too many, each for a random time, so that they do
// not go on at the same instant.
func (c *Machine) publish() {
	h := &c.notices
	if !h.asked || len(h.announced) == 0 || h.publishing != 0 {
		return
	}
	if h.channel == "" || h.muted != nil || !c.shards[0].healthy() {
		clear(h.announced)
		h.room = false
		return
	}
	if c.now < h.mayPublishAt() && !h.room {
		return
	}
	list := h.inOrder()
	list = list[:min(len(list), redisstore.MaxNotices)]
	for i := range list {
		delete(h.announced, counter.NoticeID(list[i].ID))
	}
	h.room = h.room && len(list) == redisstore.MaxNotices && list[len(list)-1].Until == 0 // then there may be more
	c.stats.Announced.Add(uint64(len(list)))
	c.spend()
	if h.spent-c.now > int64(time.Second) {
		h.publishAt = h.spent - int64(time.Second) + c.jitter(c.members.count*c.delivery(), 0, 1)
	}
	if c.cfg.single {
		for i, e := range c.out {
			if s, ok := e.(Send); ok {
				s.Channel, s.Notices, h.publishing = h.channel, list, s.ID
				c.out[i] = s
				return
			}
		}
	}
	h.publishing = c.newID()
	c.emit(Publish{ID: h.publishing, Timeout: c.deadline(c.shards[0].server, 0), Channel: h.channel, Node: c.node, Notices: list})
}

// onPublished handles the end of a call that has published something. What was lost is not published again.
func (c *Machine) onPublished(id uint64, err error) {
	h := &c.notices
	if h.publishing != id {
		return
	}
	h.publishing = 0
	if class, _ := redisstore.Classify(err); err != nil && class == redisstore.ClassMisconfigured {
		h.muted = err // until a heartbeat says otherwise
	}
}

// This file is how the core hears notices.

// noteChannel applies what a heartbeat has said of the channel.
func (c *Machine) noteChannel(b redisstore.Beat) {
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
		c.emit(Listen{Channel: h.channel, Node: c.node})
	}
	c.noteHearing()
	c.sweepNotices()
}

// noteHearing makes known whether the notices of other nodes arrive.
func (c *Machine) noteHearing() {
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
		c.happened(Incident{Kind: Deaf, Reason: "notices of other nodes do not arrive: " + reason, Err: Plain(cmp.Or(h.muted, h.err))})
	}
}

// onHeard handles what the subscription has brought.
func (c *Machine) onHeard(ev Heard) {
	h := &c.notices
	if ev.Err != nil {
		h.confirmed, h.err = false, ev.Err
	}
	if ev.Confirmed {
		h.confirmed, h.silent, h.echoed, h.err = true, 0, h.echo, nil
	}
	h.echoed = max(h.echoed, ev.Echo)
	for _, m := range ev.Messages {
		if m.Node == c.node {
			continue
		}
		c.spend()
		for i := range m.Notices {
			c.hear(&m.Notices[i])
		}
	}
	c.noteHearing()
}

// hear takes in one notice.
func (c *Machine) hear(n *redisstore.Notice) {
	if n.Shard < 0 || n.Shard >= len(c.shards) || !c.shards[n.Shard].healthy() {
		return
	}
	clock := &c.shards[n.Shard].server.offset
	server := c.local + clock.ns
	ahead := int64(n.Now) > server+clock.grown(c.local)+int64(aheadMost)
	if !clock.known || ahead || n.Until != 0 && int64(n.Until) <= server {
		return
	}
	c.stats.Heard.Add(1)
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
func (c *Machine) sweepNotices() {
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
