package reconcile

import (
	"math"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// beat is a heartbeat under way. It also probes servers that were unreachable, and checks
// shards that have nothing to send for lost data.
type beat struct {
	id     uint64
	at     int64   // when it was sent, on the timer clock
	sent   int64   // the same instant on the counter clock
	node   string  // the name that it enters into the list of live nodes, and whose records it reads
	shards []int   // the shards that it asks for
	acked  []int64 // per shard: the number acknowledged under that name when the heartbeat was sent

	receives bool  // notices of other nodes arrived when it was sent
	joined   int64 // greetings until then: the list includes their nodes
}

// heartbeats is when the next heartbeat is sent, and how the latest one ended.
type heartbeats struct {
	next    int64 // when the next heartbeat or probe is due, after the one under way
	current *beat // the one under way; nil: none

	lastFailed   bool // the latest one ended with an error
	probesFailed int  // probes that failed in a row
	unanswered   int  // heartbeats and probes in a row that had no answer in time
}

// sendBeat sends a heartbeat.
func (c *Machine) sendBeat() {
	b := &beat{id: c.newID(), at: c.now, sent: c.local, node: c.node, receives: c.notices.receives(), joined: c.joining.joined}
	b.shards = c.shardsToAsk()
	for _, i := range b.shards {
		acked := c.shards[i].acked
		if c.shards[i].node != b.node {
			acked = 0
		}
		b.acked = append(b.acked, acked)
	}
	if !slices.ContainsFunc(c.shards, func(s shard) bool { return s.waits() }) {
		c.stats.Behind.Store(0)
	}
	c.beats.current, c.beats.next = b, math.MaxInt64 // until an event asks for another one
	c.stats.Beats.Add(1)
	ef := Beat{ID: b.id, Timeout: c.beatDeadline(), Node: b.node, Shards: b.shards}
	if h := &c.notices; h.channel != "" {
		ef.Channel, ef.Via, ef.Echo = h.channel, max(c.carrier(), 0), h.beatsWith()
	}
	c.emit(ef)
}

// onBeat handles the end of a heartbeat.
func (c *Machine) onBeat(ev BeatAnswer) {
	b := c.beats.current
	if b == nil || b.id != ev.ID {
		return
	}
	c.beats.current, c.beats.lastFailed = nil, ev.Err != nil
	if isTimeout(ev.Err) {
		c.beats.unanswered++
	} else if ev.Err == nil {
		c.beats.unanswered = 0
	}
	if len(ev.Beat.Seqs) != len(b.shards) {
		// Then nothing is known about any shard.
		if ev.Beat = (redisstore.Beat{}); ev.Err == nil {
			ev.Err = errMissingReply
		}
	}
	c.Place(ev.Addrs) // by the clocks as they were known before
	listed := ev.listed()
	if listed {
		c.sample(c.shards[0].server, b.sent, ev.Recv, int64(ev.Beat.Now))
	}
	all := c.beatShards(b, ev)
	c.Place(ev.Addrs) // and by what the heartbeat has shown of them
	// Only after beatShards: if that has noticed a loss of data, the number of nodes must not fall yet.
	if listed || c.cfg.Channel != "" {
		c.noteChannel(ev.Beat)
	} else {
		c.noteHearing()
	}
	if listed {
		c.noteLayouts(ev.Beat.Others)
		c.notices.greet = c.joining.listed(b, c.now, c.cfg.HeartbeatInterval) && c.cfg.Notices || c.notices.greet
		c.countNodes(int64(ev.Beat.Nodes))
	}
	all = c.ofList(all, ev)
	failing := slices.ContainsFunc(all, func(a answer) bool { return a.err != nil })
	c.beats.next = max(min(c.beats.next, b.at+c.jitter(c.cfg.HeartbeatInterval, 0.9, 1)), c.now)
	switch {
	case failing:
		c.beats.next = c.now + c.jitter(retryPause, 0.5, 1.5)
	case ev.Err != nil:
		c.noteFailure(ev.Err) // only the list of nodes is broken: go on as usual
		c.stats.Failed(c.lastReason)
	default:
		c.stats.Answered(c.now-b.at, c.local)
	}
	found := false
	class := c.exchangeEnded(b.at, all, func(v *server) {
		found = true
		if c.reached(v); ev.Err == nil { // else the heartbeat has waited for other servers until its deadline
			v.load.distance.answered(c.now, c.now-b.at)
		}
	})
	if failing && c.count(down) > 0 {
		c.scheduleProbe(class)
	}
	if found && c.members.waitsForAnswer() && c.count(down) == 0 { // an outage has ended, or Redis has answered for the first time
		c.members.hold(c.now + max(beatsToReturn*c.cfg.HeartbeatInterval, c.cfg.MaxBackoff))
	}
}

// ofList adds the answer about the list of nodes, which is on the server of shard 0, to the answers of a
// heartbeat, unless they include one about a shard of that server.
func (c *Machine) ofList(all []answer, ev BeatAnswer) []answer {
	err := ev.Err
	if ev.listed() {
		err = nil
	}
	class, _ := redisstore.Classify(err)
	spoken := slices.ContainsFunc(all, func(a answer) bool { return c.shards[a.shard].server == c.shards[0].server })
	if spoken || class == redisstore.ClassKey {
		return all
	}
	return append(all, answer{err: err, list: true})
}

// listed reports whether the heartbeat has returned the list of live nodes.
func (ev BeatAnswer) listed() bool { return ev.Err == nil || ev.Beat.Nodes > 0 }

// beatShards handles what a heartbeat says about each shard, and returns an answer, or an error, for each.
func (c *Machine) beatShards(b *beat, ev BeatAnswer) (all []answer) {
	taken := false
	for i, sh := range b.shards {
		if i >= len(ev.Beat.Seqs) || ev.Beat.Seqs[i] < 0 {
			err := ev.Err
			if i < len(ev.Beat.Errs) {
				err = ev.Beat.Errs[i]
			}
			all = append(all, answer{shard: sh, err: err})
			continue
		}
		s := &c.shards[sh]
		all = append(all, answer{shard: sh})
		now := s.numberAt
		if i < len(ev.Beat.Times) {
			now = int64(ev.Beat.Times[i])
			c.sample(s.server, b.sent, ev.Recv, now)
		}
		if s.node != b.node {
			continue // the record is of another name than the shard uses
		}
		taken = taken || ev.Beat.Seqs[i] > s.seq // this node has not used that number: another process has
		// A number below the one that was acknowledged when the heartbeat was sent shows a loss of data.
		// It is known already if it is not repaired yet, or was repaired after the heartbeat was sent.
		if ev.Beat.Seqs[i] < b.acked[i] && b.acked[i] >= s.repaired && !s.lost && !s.accept {
			c.noteLoss(s, now)
			if s.flight == nil { // else the reply to it will report the loss
				s.acceptNext(c.ids.Nonce())
			}
		}
		s.numberAt = now
	}
	if taken {
		c.rename()
	}
	return all
}

// shardsToAsk returns the shards that the next heartbeat asks for: all for which there is a reason, or
// else one that was written. The batch that its reports are expected in may turn out to be empty.
func (c *Machine) shardsToAsk() (list []int) {
	written := -1
	for i := range c.shards {
		if c.reasonToAsk(i) {
			list = append(list, i)
		} else if c.shards[i].seq > 0 {
			written = i
		}
	}
	if len(list) == 0 && written >= 0 {
		list = append(list, written)
	}
	return list
}

// reasonToAsk reports whether a heartbeat should ask for a shard.
func (c *Machine) reasonToAsk(i int) bool {
	s := &c.shards[i]
	switch v := s.server; {
	case v.health == down, !v.offset.known && v != c.shards[0].server:
		return true
	case (c.beats.lastFailed || c.count(down) > 0) && i == v.shards[0]:
		// Ask for one shard of each server. The list of nodes does not show whether the servers would
		// apply batches: either may work without the other.
		return true
	case s.seq == 0:
		return s.asked
	case v.health != up || s.missed || v.rounds.fails > 0 || s.rounds.fails > 0:
		return true
	}
	// If a batch is sent before the next heartbeat, its answer says whether Redis has lost data.
	return s.pipe == 0 && s.due() == 0
}

// Processes with another layout (see [redisstore.Keyspace.Layout]) use other Redis keys, although they have
// the same Redis and prefix. They share no limit with this process: each layout admits a whole limit.

// noteLayouts applies the list of other layouts that a heartbeat has found.
func (c *Machine) noteLayouts(others []string) {
	if len(others) == 0 && c.members.held(c.now) {
		return // Redis may have lost the list
	}
	c.stats.Mismatches.Store(int64(len(others)))
	found := ""
	if len(others) > 0 {
		found = "shares no limits with processes of another layout: " + strings.Join(others, "; ") + ", and here " + c.keys.Layout()
	}
	if found == c.mismatch {
		return
	}
	if c.mismatch = found; found != "" {
		c.happened(Incident{Kind: Mismatch, Reason: found})
	}
}
