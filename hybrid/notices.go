package hybrid

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/algorithm"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A node that learns from Redis that its report has used up a key tells all others at once, on a
// channel. A notice is a hint: it refuses until the key has room again or Redis has answered, and
// nothing else leans on it.

const (
	// maxDeliveries bounds the messages that Redis delivers: so many a second to all nodes
	// together. A delivery takes it about 5 µs of processor time.
	maxDeliveries = 20_000
	// maxAnnounced bounds the notices that wait to be told.
	maxAnnounced = 10_000
	// echoesMissed is after how many heartbeats in a row whose echo was not heard the
	// subscription counts as broken.
	echoesMissed = 2
	// deafAfter is after how many heartbeats without a subscription that is said.
	deafAfter = 3
)

// notices is what a node has to tell the others, and whether it hears them.
type notices struct {
	channel   string // id of the channel; empty: not known
	confirmed bool   // the subscription is
	silent    int    // heartbeats in a row whose echo was not heard
	echo      uint64 // number of the latest
	echoed    uint64 // the latest that was heard
	since     int64  // when the subscription was last in order, on the timer clock
	err       error  // why it is not; nil: not known
	muted     error  // why nothing can be published; nil: it can

	announced map[counter.NoticeID]redisstore.Notice // to be told
	room      bool                                   // some of them say that there is room: these do not wait
	telling   uint64                                 // id of the call that tells; 0: none
	tellAt    int64                                  // nothing is told before, unless there is room
	spent     int64                                  // until when the messages heard and sent use up what Redis may deliver, on the timer clock

	byID map[uint64]*counter.Counter // by the first bytes of the ID; all that Redis has answered for
	kept int                         // how many of them were alive at the last look
}

// noticeIDs returns the function that names counters in notices.
func noticeIDs(keys redisstore.Keyspace) func(shard int, rule *limit.Rule, key string, hashed bool) counter.NoticeID {
	return func(shard int, rule *limit.Rule, key string, hashed bool) counter.NoticeID {
		return counter.NoticeID(keys.NoticeID(shard, rule, key, hashed))
	}
}

// message is what a node has told.
type message struct {
	node    string
	notices []redisstore.Notice
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

// noteChannel applies what a heartbeat has said of the channel.
func (c *core) noteChannel(b redisstore.Beat) {
	h := &c.notices
	if !c.cfg.notices {
		return
	}
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
		c.happened(Event{Kind: EventDeaf, Reason: "notices of other nodes do not arrive: " + reason, Err: cmp.Or(h.muted, h.err)})
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
	ahead := int64(n.Now) > server+clock.grown(c.local)+algorithm.ClockStep
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

// idPrefix returns the part of an ID by which counters are looked up. Counters that share it are
// rare, and lose no more than notices.
func idPrefix(id counter.NoticeID) uint64 { return binary.BigEndian.Uint64(id[:]) }

// sweepNotices drops what is over.
func (c *core) sweepNotices() {
	h := &c.notices
	if c.link.Kept() > 0 {
		clock := &c.shards[0].server.offset
		server := c.local + clock.ns
		c.link.SweepNotices(func(n counter.Notice) bool {
			return max(n.Until, n.Now+int64(time.Minute)) < server || n.Until == 0 && n.Now+int64(time.Minute) < server
		})
	}
	if len(h.byID) > 2*h.kept+1024 {
		maps.DeleteFunc(h.byID, func(_ uint64, k *counter.Counter) bool { return k.Dropped() })
		h.kept = len(h.byID)
	}
}

// settled notes what has come of an answer: a counter that others may speak of, or what they are
// to be told.
func (c *core) settled(ctr *counter.Counter, o counter.Outcome) {
	if !c.cfg.notices || !o.First && o.Notice == nil {
		return
	}
	id := ctr.ID()
	if o.First {
		c.notices.byID[idPrefix(id)] = ctr
	}
	if n := o.Notice; n != nil {
		c.announce(redisstore.Notice{
			ID: redisstore.NoticeID(id), Shard: ctr.Shard(), Shape: n.Shape, Limit: n.Limit,
			Gen: n.Gen, Now: time.Duration(n.Now), Until: time.Duration(n.Until),
		})
	}
}

// announce has a notice told. If too many wait, one of those that end soonest is dropped.
func (c *core) announce(n redisstore.Notice) {
	h := &c.notices
	if !c.cfg.notices || h.channel == "" || h.muted != nil {
		return
	}
	if n.Until == 0 {
		h.room = true
	} else if c.now < h.mayTellAt() {
		c.stats.keptBack.Add(1)
	}
	h.announced[counter.NoticeID(n.ID)] = n
	if len(h.announced) > maxAnnounced {
		for _, n := range h.inOrder()[maxAnnounced:] {
			delete(h.announced, counter.NoticeID(n.ID))
		}
	}
}

// inOrder returns what is to be told: first that there is room, then the longest waits.
func (h *notices) inOrder() []redisstore.Notice {
	return slices.SortedFunc(maps.Values(h.announced), func(a, b redisstore.Notice) int {
		if (a.Until == 0) != (b.Until == 0) {
			return cmp.Compare(a.Until, b.Until)
		}
		return cmp.Or(cmp.Compare(b.Until, a.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
}

// spend notes a message that Redis delivers to all nodes.
func (c *core) spend() {
	c.notices.spent = max(c.notices.spent, c.now) + c.members.count*int64(time.Second)/maxDeliveries
}

// mayTellAt returns when the deliveries of the last second are few enough for another message.
func (h *notices) mayTellAt() int64 { return max(h.spent-int64(time.Second), h.tellAt) }

// tell publishes what is to be told, in the pipeline that leaves anyway or by itself. All nodes
// hear all messages, and wait when there are too many, each for a random time, so that they do
// not go on at the same instant.
func (c *core) tell() {
	h := &c.notices
	if len(h.announced) == 0 || h.telling != 0 {
		return
	}
	if h.channel == "" || h.muted != nil || !c.shards[0].healthy() {
		clear(h.announced)
		h.room = false
		return
	}
	if c.now < h.mayTellAt() && !h.room {
		return
	}
	list := h.inOrder()
	list = list[:min(len(list), redisstore.MaxNotices)]
	for i := range list {
		delete(h.announced, counter.NoticeID(list[i].ID))
	}
	h.room = h.room && len(list) == redisstore.MaxNotices && list[len(list)-1].Until == 0 // then there may be more
	c.stats.announced.Add(uint64(len(list)))
	c.spend()
	if h.spent-c.now > int64(time.Second) {
		h.tellAt = h.spent - int64(time.Second) + c.jitter(c.members.count*c.members.count*int64(time.Second)/maxDeliveries, 0, 1)
	}
	if c.cfg.single {
		for i, e := range c.out {
			if s, ok := e.(efSend); ok {
				s.channel, s.tell, h.telling = h.channel, list, s.id
				c.out[i] = s
				return
			}
		}
	}
	h.telling = c.newID()
	c.emit(efTell{id: h.telling, channel: h.channel, node: c.node, notices: list})
}

// onTold handles the end of a call that has told something. What was lost is not told again.
func (c *core) onTold(id uint64, err error) {
	h := &c.notices
	if h.telling != id {
		return
	}
	h.telling = 0
	if class, _ := redisstore.Classify(err); err != nil && class == redisstore.ClassMisconfigured {
		h.muted = err // until a heartbeat says otherwise
	}
}
