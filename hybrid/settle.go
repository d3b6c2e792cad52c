package hybrid

import (
	"errors"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// settle ends a flight that Redis has booked, and gives each counter the state of its key.
func (c *core) settle(s *shard, f *flight, r redisstore.Reply, sent, recv int64) {
	server, clock := int64(r.Now), &s.server.offset
	at := min(max(server-clock.ns, sent), recv)
	a := counter.Answer{
		At: at, ServerNow: server,
		Slack: max(recv-sent, 0) + int64(time.Millisecond), Late: min(at-sent, clock.grown(recv)),
	}
	a.Sent, a.Announce = sent, r.Fate == redisstore.FateApplied
	announce := a.Announce
	s.acked, s.accept, s.lost = s.seq, false, false
	// If the node was renamed while the flight was under way, Redis has no record of the new
	// name yet. Report these counters again, see rename.
	renamed := s.node != c.node
	c.endFlight(s)
	for i, it := range f.items {
		st := r.States[i]
		if st.Err != nil {
			it.booked = it.booked || st.Booked
			c.onKeyError(it, st.Err)
			continue
		}
		st.Forgiven += it.forgiven // at most one of the two is not 0
		c.stats.acked.Add(it.units - st.Forgiven)
		c.stats.forgiven.Add(st.Forgiven)
		if it.back {
			c.stats.returned.Add(1)
		}
		a.Rule, a.Raised, a.Gen, a.Born, a.Level = it.rule, it.raised, st.Gen, st.Born, st.Level
		a.Buckets, a.Converted, a.Forgiven = toLocal(st.Buckets), st.Converted, st.Forgiven
		a.Announce, a.Returned = announce && it.units > 0, it.back
		out := it.c.Settle(c.local, a)
		if renamed && it.c.Refresh() {
			out.Again = true
		}
		c.settled(it.c, out, sent)
		c.afterSettle(it.c, out)
	}
}

// onKeyError puts a counter into quarantine whose key Redis could not use, although it has
// applied the rest of the batch.
func (c *core) onKeyError(it item, err error) {
	var key *limit.KeyError
	if it.booked {
		c.stats.acked.Add(it.units - it.forgiven)
		c.stats.forgiven.Add(it.forgiven)
		if it.back {
			c.stats.returned.Add(1)
		}
	}
	reason := textOf(err)
	if errors.As(err, &key) {
		reason = key.Reason
	}
	if !it.c.Quarantined() {
		c.happened(Event{Kind: EventQuarantined, Reason: "redis cannot use the key: " + reason, Key: it.c.Key(), Err: plain(err)})
	}
	first := it.c.Quarantine(c.local, it.booked)
	c.stats.quarantined.Add(1)
	if first {
		c.broken.add(it.c, c.now+c.cfg.quarantine)
	}
}

// afterSettle counts and queues what has come of an answer for a counter.
func (c *core) afterSettle(ctr *counter.Counter, o counter.Outcome) {
	if o.Lost {
		c.stats.rolledBack.Add(1)
	}
	c.stats.noteOvershoot(o.Overshoot)
	if o.Again {
		c.enqueue(ctr, false)
	}
	if o.Urgent {
		c.enqueue(ctr, true)
	}
}

// abandon gives up a flight that the store has refused to send because it contradicts
// itself. That would be a bug in this package. Its keys go into quarantine, so that the
// other keys of the shard are still reported.
func (c *core) abandon(s *shard, err error) {
	c.stats.badReplies.Add(1)
	c.giveUpRefunds(s)
	for _, it := range s.flight.items {
		c.onKeyError(it, err)
	}
	c.endFlight(s)
}

// endFlight makes room for the next flight of s. If the node was renamed meanwhile, that
// flight is numbered under the new name.
func (c *core) endFlight(s *shard) {
	if s.flight, s.asksFate = nil, false; s.node != c.node {
		s.begin(c.node)
	}
}
