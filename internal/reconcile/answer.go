package reconcile

import (
	"errors"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// settle ends a flight (a batch under way) that Redis has applied, and gives each counter the state
// that Redis has answered for its key.
func (c *Machine) settle(s *shard, f *flight, r redisstore.Reply, sent, recv int64) {
	server, clock := int64(r.Now), &s.server.offset
	at := min(max(server-clock.ns, sent), recv)
	a := report.Answer{
		At: at, ServerNow: server, Sent: sent,
		Slack: max(recv-sent, 0) + int64(time.Millisecond), Late: min(at-sent, clock.grown(recv)),
		Applied: r.Verdict == redisstore.VerdictApplied,
	}
	s.acked = s.seq
	if s.lost {
		// Redis has a record of this shard again. A heartbeat that was sent before may have been
		// executed after the loss and before this flight. The number that it shows is not another loss.
		s.repaired = s.acked
	}
	s.accept, s.lost, s.flight = false, false, nil
	if s.node != c.node { // it was renamed while the flight was under way
		s.begin(c.node)
	}
	for i, it := range f.items {
		st, rep := r.States[i], &f.reports[i]
		if st.Err == nil || st.Booked {
			c.stats.Acked.Add(rep.Units - st.Forgiven)
			c.stats.Forgiven.Add(st.Forgiven)
			if it.back {
				c.stats.Returned.Add(1)
			}
		}
		if st.Err != nil {
			c.onKeyError(it.c, st)
			continue
		}
		a.State, a.Rule, a.Restored = st, rep.Rule, rep.Restore
		a.Announce, a.Returned = r.Verdict == redisstore.VerdictApplied && rep.Units > 0, it.back
		out := it.c.Settle(c.local, a)
		c.afterSettle(it.c, out, sent)
	}
}

// onKeyError puts a counter into quarantine because Redis could not use its key, although it has
// applied the rest of the batch.
func (c *Machine) onKeyError(k *counter.Counter, st report.State) {
	var key *limit.KeyError
	reason := redisstore.Text(st.Err)
	if errors.As(st.Err, &key) {
		reason = key.Reason
	}
	was, first := k.Quarantine(c.local, st.Booked)
	if !was {
		c.happened(Incident{Kind: Quarantined, Reason: "redis cannot use the key: " + reason, Key: k.Key(), Err: Plain(st.Err)})
	}
	c.stats.Quarantined.Add(1)
	if first {
		c.broken.add(k, c.now+quarantine)
	}
}

// afterSettle applies the outcome of an answer for one counter: it updates the notices and the
// statistics, and queues the counter if it has to report again. sent is when the exchange began.
func (c *Machine) afterSettle(ctr *counter.Counter, o counter.Outcome, sent int64) {
	c.settled(ctr, o, sent)
	if o.Lost {
		c.stats.RolledBack.Add(1)
	}
	c.stats.noteOvershoot(ctr.Rule().Name(), o.Overshoot)
	if o.Again {
		c.enqueue(ctr)
	}
	if o.Urgent {
		c.hasten(ctr, true)
	}
}

var (
	errTimeout      = errors.New("hybrid: no answer within the command timeout")
	errMissingReply = errors.New("hybrid: redis answered fewer commands than it was sent")
)

// exchangeEnded handles the end of an exchange (a pipeline or a heartbeat) that was sent at began. all has
// one answer for each shard. It calls answered for each server that has answered for any shard. It returns
// the smallest class of the failures, which may end soonest; 0: there are none.
func (c *Machine) exchangeEnded(began int64, all []answer, answered func(*server)) (class redisstore.Class) {
	var of []*server
	for _, a := range all {
		v := c.shards[a.shard].server
		if len(v.answers) == 0 {
			of = append(of, v)
		}
		v.answers = append(v.answers, a)
	}
	for _, v := range of {
		if slices.ContainsFunc(v.answers, answer.worked) {
			answered(v)
		}
		if k := c.failing(v, began); k != 0 && (class == 0 || k < class) {
			class = k
		}
		clear(v.answers)
		v.answers = v.answers[:0]
	}
	if class != 0 {
		c.stats.Failed(c.lastReason)
	}
	return class
}

// apartAfter bounds how long a shard may fail while its server answers for other shards. The shard is
// down after apartAfter times degradeAfter failed rounds, or after a flight without an answer within
// the longest deadline. So many answers in a row are not lost by chance.
const apartAfter = 4

// failing handles the shards of server v whose exchange has failed, and returns the class of the
// failure, 0 if there are none. A shard for which every exchange fails while v answers for other shards
// becomes a server of its own, which is down.
func (c *Machine) failing(v *server, began int64) (class redisstore.Class) {
	some := slices.ContainsFunc(v.answers, answer.worked)
	if first := slices.IndexFunc(v.answers, func(a answer) bool { return !a.worked() }); first >= 0 {
		class = c.noteFailure(v.answers[first].err)
	}
	if !some {
		c.failed(v, began, class)
	}
	for _, a := range v.answers {
		if a.list || a.worked() {
			continue
		}
		s := &c.shards[a.shard]
		s.retry = c.now + c.jitter(retryPause, 0.5, 1.5)
		s.rounds.failed(began, c.now)
		if (a.spent || s.rounds.fails >= apartAfter*c.cfg.DegradeAfter) && (some || v.bookedAt > s.rounds.since) && len(v.shards) > 1 {
			c.setHealth(c.isolate(a.shard), down)
		}
	}
	return class
}

// failed counts an exchange that server v has not answered. v is down at once if it has answered no
// batch since its latest outage, or none ever, or has not answered a flight within the longest
// deadline. If all that failed are flights that will be sent again with a longer deadline, v may just
// be slow. Then a heartbeat is sent at once, to see whether v hangs.
func (c *Machine) failed(v *server, began int64, class redisstore.Class) {
	v.rounds.failed(began, c.now)
	if v.health == up && !c.beats.lastFailed && !slices.ContainsFunc(v.answers, func(a answer) bool { return !a.waits }) {
		c.beats.next = min(c.beats.next, c.now)
		return
	}
	spent := slices.ContainsFunc(v.answers, func(a answer) bool { return a.spent })
	if spent || v.rounds.fails >= c.cfg.DegradeAfter || v.health != up || class == redisstore.ClassMisconfigured {
		c.setHealth(v, down)
	}
}

// isTimeout reports whether an exchange has failed because its time was up.
func isTimeout(err error) bool {
	_, reason := redisstore.Classify(err)
	return reason == "timeout" || errors.Is(err, errTimeout)
}

// noteFailure stores the reason of a failure, and returns its class.
func (c *Machine) noteFailure(err error) (class redisstore.Class) {
	if class, c.lastReason = redisstore.Classify(err); isTimeout(err) {
		class, c.lastReason = redisstore.ClassUnavailable, "timeout"
	}
	c.lastErr, c.reasonChanged = Plain(err), true
	return class
}

// booked notes that a server has answered a batch.
func (c *Machine) booked(v *server) {
	for _, a := range v.answers {
		if a.err == nil {
			c.shards[a.shard].rounds.fails = 0
		}
	}
	if v.rounds.fails, v.bookedAt = 0, c.now; v.health == trying {
		c.setHealth(v, up)
	}
}

// reached notes that a server has answered a heartbeat. If the server was down, its queues become the
// backlog: the reports that Redis may have missed are sent first, at a limited pace.
func (c *Machine) reached(v *server) {
	for _, a := range v.answers {
		if s := &c.shards[a.shard]; a.err == nil && !a.list && s.flight == nil {
			s.rounds.fails = 0
		}
	}
	if v.health != down {
		// While a flight is under way or is to be sent again, its answer shows whether the server
		// works: do not clear the failures. A flight without an answer in time (late) may just be
		// slow, and does not count here.
		if !slices.ContainsFunc(v.shards, func(i int) bool { f := c.shards[i].flight; return f != nil && f.late == 0 }) {
			v.rounds.fails = 0
		}
		return
	}
	c.wheel.all(c.ready)
	for _, i := range v.shards {
		s := &c.shards[i]
		s.backlog = append(s.backlog, s.normal...)
		s.normal, s.normalAt, s.retry, s.missed = nil, 0, 0, true
	}
	v.rounds.fails, v.load.paceAt = 0, min(v.load.paceAt, c.now)
	v.load.budget.anew()
	c.setHealth(v, trying)
}
