package reconcile

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// A node that learns from Redis that its report has used up a key publishes a notice at once, on a
// Pub/Sub channel that all nodes subscribe to. A notice is only a hint: a node that receives it refuses
// the key until the key has room again or Redis has answered. Nothing else depends on it.

const (
	// maxDeliveries bounds how many messages a second Redis delivers to all nodes together. A
	// delivery takes about 5 µs of its processor time.
	maxDeliveries = 20_000
	// maxAnnounced bounds the notices that wait to be published. When there are so many, a quarter of
	// them is dropped.
	maxAnnounced = 4_000
	// echoesMissed is after how many heartbeats in a row without an echo the subscription counts as
	// broken. With each heartbeat Redis publishes an echo, which this node should receive.
	echoesMissed = 2
	// noticesDownAfter is for how many heartbeats the subscription must be broken before that is reported,
	// see [State].NoticesDown.
	noticesDownAfter = 3
)

// notices holds the notices that are to be published, and the state of the subscription by which this
// node receives those of other nodes.
type notices struct {
	channel   string // id of the channel; empty: not known
	asked     bool   // a heartbeat has reported what the channel is, or that there is none
	confirmed bool   // Redis has confirmed the subscription
	silent    int    // heartbeats in a row whose echo was not received
	echo      uint64 // number of the latest echo that a heartbeat has asked for
	echoed    uint64 // number of the latest echo that was received
	since     int64  // when the subscription last worked, on the timer clock
	missed    int64  // when messages were last missed, on the counter clock: later ones have all arrived
	err       error  // why it does not work; nil: not known
	muted     error  // why this node cannot publish; nil: it can

	announced  map[report.NoticeID]report.Notice // notices to be published
	greet      bool                              // the entry of this node in the list is new: publish a greeting
	room       bool                              // some of them say that a key has room again: these do not wait
	publishing uint64                            // id of the call that publishes; 0: none
	publishAt  int64                             // nothing is published before this, except that a key has room
	spent      int64                             // until when the messages so far use up what Redis may deliver, timer clock

	byID map[uint64]*counter.Counter // counters that Redis has answered for, by idPrefix
	kept int                         // length of byID after the last sweep
}

// Message is what a node has published in one message. Without notices it is a greeting: the node has
// joined.
type Message struct {
	Node    string
	Notices []report.Notice
}

// receives reports whether the notices of other nodes arrive.
func (h *notices) receives() bool { return h.confirmed && h.silent < echoesMissed }

// beatsWith notes that a heartbeat is sent, and returns the number of its echo. It counts the earlier
// echoes that were not received.
func (h *notices) beatsWith() uint64 {
	if h.confirmed && h.echoed < h.echo {
		h.silent++
	} else {
		h.silent = 0
	}
	h.echo++
	return h.echo
}

// inOrder returns the notices that are to be published: first those of keys that have room again, then
// those of used-up keys, the longest refusals first.
func (h *notices) inOrder() []report.Notice {
	return slices.SortedFunc(maps.Values(h.announced), func(a, b report.Notice) int {
		if (a.Until == 0) != (b.Until == 0) {
			return cmp.Compare(a.Until, b.Until)
		}
		return cmp.Or(cmp.Compare(b.Until, a.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
}

// mayPublishAt returns when the deliveries of the last second are few enough for this node to publish.
func (h *notices) mayPublishAt() int64 { return max(h.spent-int64(time.Second), h.publishAt) }

// idPrefix returns the part of an ID by which counters are looked up. Counters rarely share it. If two
// do, one of them misses notices, and nothing else.
func idPrefix(id report.NoticeID) uint64 { return binary.BigEndian.Uint64(id[:]) }

// Publishing.

// settled handles what an answer from Redis means for notices. With the first answer the counter can be
// found by the ID in notices. The outcome may contain a notice for the other nodes. sent is when the
// exchange began. A notice may arrive before the first answer, which comes by another connection. Then
// it was kept, and is applied now.
func (c *Machine) settled(ctr *counter.Counter, o counter.Outcome, sent int64) {
	if !c.cfg.Notices || !o.First && o.Notice == nil && !o.Forget {
		return
	}
	id := ctr.ID()
	if o.Forget {
		c.link.Forget(id)
	}
	if o.First {
		c.notices.byID[idPrefix(id)] = ctr
		if n, ok := c.link.Missed(id, sent); ok && ctr.Hear(c.local, n) {
			c.enqueue(ctr)
		}
	}
	if n := o.Notice; n != nil {
		n.ID, n.Shard = id, ctr.Shard()
		c.announce(*n)
	}
}

// announce queues a notice for publishing. If too many wait, those that end soonest are dropped.
func (c *Machine) announce(n report.Notice) {
	h := &c.notices
	if !c.cfg.Notices || h.channel == "" && h.asked || h.muted != nil {
		return
	}
	if n.Until == 0 {
		h.room = true
	} else if c.now < h.mayPublishAt() {
		c.stats.Withheld.Add(1)
	}
	h.announced[n.ID] = n
	if len(h.announced) >= maxAnnounced {
		for _, n := range h.inOrder()[maxAnnounced*3/4:] {
			delete(h.announced, n.ID)
		}
	}
}

// delivery returns for how long one message to all nodes uses up what Redis may deliver, in ns: for each
// node a second divided by maxDeliveries.
func (c *Machine) delivery() int64 { return c.members.count * int64(time.Second) / maxDeliveries }

// spend counts a message that Redis delivers to all nodes, up to two messages of each node above what
// Redis may deliver in a second. More are not counted: otherwise, after a flood of messages that do not
// wait (a key has room), the other messages would have to wait for long.
func (c *Machine) spend() {
	most := c.now + int64(time.Second) + 2*c.members.count*c.delivery()
	c.notices.spent = min(max(c.notices.spent, c.now)+c.delivery(), most)
}

// publish sends the queued notices, in a pipeline of this step if there is one, else in a call of their
// own. All nodes receive all messages, and wait when there are too many. Each waits for a random time,
// so that they do not all continue at the same instant.
func (c *Machine) publish() {
	h := &c.notices
	if !h.asked || len(h.announced) == 0 && !h.greet || h.publishing != 0 {
		return
	}
	via := c.carrier()
	if h.channel == "" || h.muted != nil || via < 0 {
		clear(h.announced)
		h.room = false
		return
	}
	if h.greet {
		h.greet = false
		c.spend()
		c.publishAlone(via, nil)
		return
	}
	if c.now < h.mayPublishAt() && !h.room {
		return
	}
	list := h.inOrder()
	list = list[:min(len(list), redisstore.MaxNotices)]
	for i := range list {
		delete(h.announced, list[i].ID)
	}
	h.room = h.room && len(list) == redisstore.MaxNotices && list[len(list)-1].Until == 0 // then there may be more
	c.stats.Announced.Add(uint64(len(list)))
	c.spend()
	if h.spent-c.now > int64(time.Second) {
		h.publishAt = h.spent - int64(time.Second) + c.jitter(c.members.count*c.delivery(), 0, 1)
	}
	if c.cfg.Single {
		for i, e := range c.out {
			if s, ok := e.(Send); ok {
				s.Channel, s.Notices, h.publishing = h.channel, list, s.ID
				c.out[i] = s
				return
			}
		}
	}
	c.publishAlone(via, list)
}

// carrier returns a shard whose server can carry messages, -1 if there is none: the first shard, to which
// the channel belongs, or any other if all servers pass on messages to each other.
func (c *Machine) carrier() int {
	for i := range c.shards {
		if c.shards[i].healthy() {
			return i
		}
		if c.cfg.Channel == "" {
			break
		}
	}
	return -1
}

// publishAlone publishes notices, or a greeting, in a call of their own.
func (c *Machine) publishAlone(via int, list []report.Notice) {
	h := &c.notices
	h.publishing = c.newID()
	c.emit(Publish{ID: h.publishing, Timeout: c.deadline(c.shards[via].server, 0), Channel: h.channel, Via: via, Node: c.node, Notices: list})
}

// onPublished handles the end of a call that has published notices. Lost ones are not published again.
func (c *Machine) onPublished(id uint64, err error) {
	h := &c.notices
	if h.publishing != id {
		return
	}
	h.publishing = 0
	if class, _ := redisstore.Classify(err); class == redisstore.ClassMisconfigured {
		h.muted = err // until a heartbeat has shown that publishing works
	}
}

// Receiving.

// noteChannel applies what a heartbeat has reported about the channel.
func (c *Machine) noteChannel(b redisstore.Beat) {
	h := &c.notices
	if !c.cfg.Notices {
		return
	}
	h.asked = true
	h.muted = b.EchoErr
	if class, _ := redisstore.Classify(b.EchoErr); class == redisstore.ClassUnavailable {
		h.muted = nil // the server was away, and another one may carry the next echo
	}
	if h.muted != nil {
		h.silent = 0
	}
	if id := cmp.Or(c.cfg.Channel, b.Channel); id != h.channel || h.confirmed && h.silent >= echoesMissed {
		h.channel, h.confirmed, h.silent = id, false, 0
		c.emit(Listen{Channel: h.channel, Node: c.node})
	}
	c.hearShards()
	c.noteHearing()
	c.sweepNotices()
}

// noteHearing updates whether the notices of other nodes arrive, for [State].NoticesDown.
func (c *Machine) noteHearing() {
	h := &c.notices
	if !c.cfg.Notices {
		return
	}
	on, err, reason := h.receives(), cmp.Or(h.muted, h.err), ""
	if on || !slices.ContainsFunc(c.shards, func(s shard) bool { return s.healthy() }) {
		h.since = c.now // while no key can have notices that is no news
	}
	switch {
	case h.muted == nil && (on || c.now-h.since < noticesDownAfter*c.cfg.HeartbeatInterval):
	case err != nil:
		_, reason = redisstore.Classify(err)
	case h.channel == "":
		reason = "no channel"
	default:
		reason = "silent"
	}
	if reason == c.noticesDown {
		return
	}
	if c.noticesDown = reason; reason != "" {
		c.happened(Incident{Kind: NoticesDown, Reason: "notices of other nodes do not arrive: " + reason, Err: Plain(err)})
	}
}

// onReceived handles what the subscription has received.
func (c *Machine) onReceived(ev Received) {
	h := &c.notices
	if ev.Err != nil {
		h.confirmed, h.err = false, ev.Err
	}
	if ev.Confirmed {
		h.confirmed, h.silent, h.echoed, h.err = true, 0, h.echo, nil
	}
	if ev.Confirmed || ev.Dropped {
		h.missed = c.local
	}
	if ev.Confirmed || ev.Dropped || ev.Err != nil {
		c.hearShards()
	}
	if ev.Confirmed && !c.joining.complete {
		c.beats.next = min(c.beats.next, c.now)
	}
	h.echoed = max(h.echoed, ev.Echo)
	for _, m := range ev.Messages {
		if m.Node == c.node {
			continue
		}
		c.spend()
		if len(m.Notices) == 0 && m.Node != "" { // of another version: no name
			c.joining.joined++
			c.assumeNodes()
		}
		for i := range m.Notices {
			c.hear(&m.Notices[i])
		}
	}
	c.noteHearing()
}

// hearShard updates since when no notice about keys of a shard was missed. Between two subscriptions, and
// while a shard is not healthy, notices are missed. Keys that refuse need not be queued then: the wheel
// looks at them within a lag.
func (c *Machine) hearShard(i int) {
	since := int64(counter.NeverHears)
	if c.notices.receives() && c.shards[i].healthy() {
		since = max(c.notices.missed, c.shards[i].healthyAt)
	}
	c.link.Part(i).SetHearing(since)
}

func (c *Machine) hearShards() {
	for i := range c.shards {
		c.hearShard(i)
	}
}

// hear applies one notice. It ignores notices of shards that are not healthy, and those whose times cannot be
// right or are over.
func (c *Machine) hear(n *report.Notice) {
	if n.Shard < 0 || n.Shard >= len(c.shards) || !c.shards[n.Shard].healthy() {
		return
	}
	clock := &c.shards[n.Shard].server.offset
	server := c.local + clock.ns
	ahead := int64(n.Now) > server+clock.grown(c.local)+int64(aheadMost)
	if !clock.known || ahead || n.Until != 0 && int64(n.Until) <= server {
		return
	}
	c.stats.Received.Add(1)
	if !c.link.Keep(n.ID, *n, c.local) {
		return
	}
	k := c.notices.byID[idPrefix(n.ID)]
	if k != nil && !k.Dropped() && k.ID() == n.ID && k.Hear(c.local, *n) {
		c.enqueue(k)
	}
}

// sweepNotices drops notices that have ended, and counters that were evicted.
func (c *Machine) sweepNotices() {
	h := &c.notices
	if c.link.Kept() > 0 {
		server := c.local + c.shards[0].server.offset.ns
		c.link.SweepNotices(func(n report.Notice) bool {
			return int64(max(n.Until, n.Now+time.Minute)) < server
		})
	}
	if len(h.byID) > h.kept*5/4+1024 { // evicted counters should not stay in memory for long
		maps.DeleteFunc(h.byID, func(_ uint64, k *counter.Counter) bool { return k.Dropped() })
		h.kept = len(h.byID)
	}
}

// aheadMost is by how much the time of a notice may be ahead of our estimate of Redis' clock, besides
// the error of that estimate.
const aheadMost = 20 * time.Millisecond
