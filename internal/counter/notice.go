package counter

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A notice is a hint from another node: the key is used up until some time. It only refuses, and
// only until Redis has answered: nothing else depends on it. So a lost notice costs only accuracy,
// and a wrong one refuses for at most a lag after a check.

// receivedNotice is a notice that a counter has received and obeys.
type receivedNotice struct {
	report.Notice
	received int64 // our time at which it was received, ns
	until    int64 // Until by our clock, ns
}

// noticeSet keeps notices by the identifiers of counters, so that a counter that is created later
// obeys them. It is bounded, because every client that may publish can send notices.
type noticeSet struct {
	name  func(shard int, rule *limit.Rule, key report.StoredKey) report.NoticeID // nil: notices are off
	most  int
	count atomic.Int64 // length of byID, so that most new counters need no look-up

	mu   sync.Mutex
	byID map[report.NoticeID]receivedNotice
}

// dropOne drops a random notice other than but. It must be random, so that forged notices, whose
// times may be anything, do not drive out the others for good.
func (s *noticeSet) dropOne(but report.NoticeID) {
	for id := range s.byID {
		if id != but {
			delete(s.byID, id)
			return
		}
	}
}

// noticeLocked returns the notice that applies to a check at now, nil if there is none. It ends a
// notice that is over. All nodes admit the key again at that instant, so the next unit is urgent.
func (c *Counter) noticeLocked(now int64) *receivedNotice {
	n := c.notice
	switch {
	case n == nil:
		return nil
	case now >= n.until:
		c.notice = nil
		c.setUrgentAt(1)
		c.mark(hurried)
		return nil
	case c.bindsLocked(n, now):
		return n
	}
	return nil
}

// bindsLocked reports whether n applies to the rule and the mode of c. In an outage a notice ends a
// lag after it was received, because no node can report any more that there is room.
func (c *Counter) bindsLocked(n *receivedNotice, now int64) bool {
	r := c.rule()
	switch {
	case r.Limit > n.Limit, r.ShapeHash() != n.Shape, modeMultiplier(c.mode()) == MultiplierOpen:
		return false
	case c.link() != nil && modeDegraded(c.mode()):
		return now < n.received+c.Lag()
	}
	return true
}

// The methods below are how a link and its counters receive notices.

// leastNotices is the least bound of the notices that are kept.
const leastNotices = 4096

// SetNotices turns notices on. name returns the identifier of a counter in them. At most as many
// are kept as there are keys, or leastNotices if that is more. Call it before the first check.
func (l *Link) SetNotices(keys int, name func(shard int, rule *limit.Rule, key report.StoredKey) report.NoticeID) {
	l.notices.name, l.notices.most = name, max(keys, leastNotices)
	l.notices.byID = map[report.NoticeID]receivedNotice{}
}

// NeverHears, as the time since when notices arrive, says that they do not.
const NeverHears = math.MaxInt64

// SetHearing sets since when, in ns of our clock, no notice about a key of the shard was missed. Keys
// that refuse ask less often if their view is of a later time, see [RefusedLag]. A notice that an
// earlier view is wrong may have been missed. So when the time changes, leases end.
func (p *Part) SetHearing(since int64) {
	if p.hearing.Swap(since) != since {
		p.epoch.n.Add(1)
	}
}

// firstKeys is how long, in ns, after notices began to arrive a new key is asked for at once. It may have
// been used up before, and most keys in use are asked for within that time.
const firstKeys = 10_000_000_000

// newlyHears reports whether notices about keys of the shard began to arrive shortly before now.
func (p *Part) newlyHears(now int64) bool {
	since := p.hearing.Load()
	return since <= now && now-since < firstKeys
}

// Keep keeps a notice that was received at now for counters that are created later. It reports
// whether the notice counts: it does not if a later one was received before it. A notice that there
// is room is kept as well, so that earlier notices do not count.
func (l *Link) Keep(id report.NoticeID, n report.Notice, now int64) (counts bool) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	was, found := s.byID[id]
	room := was.Until == 0 || n.Until == 0
	if found && n.Now < was.Now && (n.Gen < was.Gen || n.Gen == was.Gen && room) {
		return false
	}
	if !found || n.Until == 0 || was.Until == 0 || n.Until > was.Until || n.Limit > was.Limit || n.Shape != was.Shape {
		s.byID[id] = receivedNotice{Notice: n, received: now}
	}
	if len(s.byID) > s.most {
		s.dropOne(id)
	}
	s.count.Store(int64(len(s.byID)))
	return true
}

// Forget drops the notice of a counter: Redis has answered since.
func (l *Link) Forget(id report.NoticeID) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
	s.count.Store(int64(len(s.byID)))
}

// Missed returns the notice that was received at since, our time in ns, or later. It is for a counter that
// existed then but had no answer yet, and so was not found when the notice arrived.
func (l *Link) Missed(id report.NoticeID, since int64) (n report.Notice, ok bool) {
	s := &l.notices
	if s.count.Load() == 0 {
		return n, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, found := s.byID[id]
	return k.Notice, found && k.received >= since
}

// SweepNotices drops the notices that are over.
func (l *Link) SweepNotices(over func(report.Notice) bool) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byID, func(_ report.NoticeID, n receivedNotice) bool { return over(n.Notice) })
	s.count.Store(int64(len(s.byID)))
}

// Kept returns how many notices are kept.
func (l *Link) Kept() int { return int(l.notices.count.Load()) }

// ID returns the identifier of c, which has a link with notices, in notices.
func (c *Counter) ID() report.NoticeID {
	return c.part.link.notices.name(c.part.shard, c.Rule(), c.Stored())
}

// kept returns the notice that is kept for a new counter c of the shard of p, nil if there is none.
func (l *Link) kept(c *Counter, rule *limit.Rule, p *Part) *receivedNotice {
	off, sure := p.clock()
	if l.notices.count.Load() == 0 || modeDegraded(p.mode.Load()) || !sure {
		return nil
	}
	id := l.notices.name(p.shard, rule, c.Stored())
	l.notices.mu.Lock()
	n, found := l.notices.byID[id]
	l.notices.mu.Unlock()
	if !found || n.Until == 0 {
		return nil
	}
	n.until = int64(min(n.Until, n.Now+c.rule().Horizon())) - off
	return &n
}

// Hear applies a notice that was received at now. It reports whether the reconciler must put c into
// the normal queue, because there may be room in a key that refuses.
func (c *Counter) Hear(now int64, n report.Notice) (ask bool) {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	off, sure := c.part.clock()
	if c.dead || !sure || c.is(quarantined) || modeDegraded(c.part.mode.Load()) || n.Gen < c.gen() && n.Now.Microseconds() < c.gen() {
		return false
	}
	if c.isAnsweredLocked() && int64(n.Now)-off < c.freshAt-max(c.part.slack.Load(), 0) {
		return false // the latest answer is of a later time
	}
	if n.Until == 0 {
		return c.hearRoomLocked(now)
	}
	until := int64(min(n.Until, n.Now+c.rule().Horizon())) - off
	if h := c.notice; until <= now || h != nil && h.until >= until && h.Limit >= n.Limit && h.Shape == n.Shape {
		return false
	}
	c.notice = &receivedNotice{Notice: n, received: now, until: until}
	return false
}

// HasNotice reports whether c has received a notice that is not over.
func (c *Counter) HasNotice() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notice != nil
}

// hearRoomLocked handles the notice that there is room.
func (c *Counter) hearRoomLocked(now int64) (ask bool) {
	bound := c.noticeLocked(now) != nil
	c.notice = nil
	c.rollLocked(now)
	if _, full := c.replica().FullUntil(c.rule(), now); !full && !bound {
		return false
	}
	c.mark(outdated | inNormal) // it may be in the queue already, until a later time
	return true
}

// announceLocked ends the notice that an answer makes void, and returns the notice for the other
// nodes, nil if there is nothing new. It says that there is no room for one more unit, or that they
// must ask. They must ask when there is room again after a refund (wasFull: there was none before),
// and when units are booked ahead. Those are not in use yet, so the key is not announced as used
// up. A dry run refuses nothing, so it announces no refusal.
func (c *Counter) announceLocked(now int64, a report.Answer, wasFull bool) (n *report.Notice, forget bool) {
	r, received := c.rule(), c.notice
	if forget = received != nil && (a.Sent >= received.received || a.ServerNow >= int64(received.Now)); forget {
		c.notice = nil
	}
	off, sure := c.part.clock()
	if c.link().notices.name == nil || !sure || modeDegraded(c.mode()) || r.Limit == 0 {
		return nil, forget
	}
	n = &report.Notice{Shape: r.ShapeHash(), Limit: r.Limit, Gen: c.gen(), Now: time.Duration(a.ServerNow)}
	until, full := c.replica().FullUntil(r, now)
	switch {
	case !full && wasFull, a.Announce && c.saysBookedLocked(now):
		return n, forget
	case !full || !a.Announce || c.latestRule.Load().IsDryRun() || c.leastLocked(now) != arith.Span{}:
		return nil, forget && !full
	}
	least := now + int64(c.link().pace.Interval)
	if received != nil && received.Limit >= n.Limit && received.Shape == n.Shape {
		least = max(least, received.until+int64(c.link().pace.Interval))
	}
	if until < least {
		return nil, false
	}
	n.Until = time.Duration(until + off)
	c.notice = &receivedNotice{Notice: *n, received: now, until: until}
	return n, false
}

// saysBookedLocked reports whether the other nodes must be notified now to ask, because units are
// booked ahead: once per lag.
func (c *Counter) saysBookedLocked(now int64) bool {
	if c.leastLocked(now) == (arith.Span{}) || now < c.history.saidAt+c.Lag() {
		return false
	}
	c.history.saidAt = now
	return true
}
