package counter

import (
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A notice is a hint from another node: the key is used up until some time. It only refuses, and
// only until Redis has answered: nothing else depends on it. So a lost notice costs only accuracy,
// and a wrong one refuses for at most a lag after a check.

// NoticeID identifies a counter in notices.
type NoticeID [16]byte

// Notice is a message of another node about a key.
type Notice struct {
	Shape uint32 // of the rule, see [arith.Rule.ShapeHash]
	Limit int64  // it applies to rules of that shape with no higher limit
	Gen   int64  // generation of the state in Redis, as in [Answer]
	Now   int64  // Redis' time at which that was so, ns
	Until int64  // Redis' time from which one more unit fits, ns; 0: there is room now
}

// heardNotice is a notice that a counter has received and obeys.
type heardNotice struct {
	Notice
	heard int64 // our time at which it was received, ns
	until int64 // Until by our clock, ns
}

// noticeSet keeps notices by the identifiers of counters, so that a counter that is created later
// obeys them. It is bounded, because every client that may publish can send notices.
type noticeSet struct {
	name  func(shard int, rule *limit.Rule, key string, hashed bool) NoticeID // nil: notices are off
	most  int
	count atomic.Int64 // length of byID, so that most new counters need no look-up

	mu   sync.Mutex
	byID map[NoticeID]keptNotice
}

type keptNotice struct {
	Notice
	heard int64 // our time at which it was received, ns
}

// dropOne drops a random notice other than but. It must be random, so that forged notices, whose
// times may be anything, do not drive out the others for good.
func (s *noticeSet) dropOne(but NoticeID) {
	for id := range s.byID {
		if id != but {
			delete(s.byID, id)
			return
		}
	}
}

// noticeLocked returns the notice that applies to a check at now, nil if there is none. It ends a
// notice that is over. All nodes admit the key again at that instant, so the next unit is urgent.
func (c *Counter) noticeLocked(now int64) *heardNotice {
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
func (c *Counter) bindsLocked(n *heardNotice, now int64) bool {
	r := c.rule()
	switch {
	case r.Limit > n.Limit, r.ShapeHash() != n.Shape, modeMultiplier(c.mode()) == MultiplierOpen:
		return false
	case c.link() != nil && modeDegraded(c.mode()):
		return now < n.heard+c.lag()
	}
	return true
}

// The methods below are how a link and its counters receive notices.

// leastNotices is the least bound of the notices that are kept.
const leastNotices = 4096

// SetNotices turns notices on. name returns the identifier of a counter in them. At most as many
// are kept as there are keys, or leastNotices if that is more. Call it before the first check.
func (l *Link) SetNotices(keys int, name func(shard int, rule *limit.Rule, key string, hashed bool) NoticeID) {
	l.notices.name, l.notices.most = name, max(keys, leastNotices)
	l.notices.byID = map[NoticeID]keptNotice{}
}

// SetHearing sets whether the notices of other nodes arrive. While they do, keys that refuse ask
// less often, see [RefusedLag]. When they stop, leases end.
func (l *Link) SetHearing(on bool) {
	if l.hearing.Swap(on) && !on {
		for i := range l.parts {
			l.parts[i].epoch.n.Add(1)
		}
	}
}

// Keep keeps a notice that was received at now for counters that are created later. It reports
// whether the notice counts: it does not if a later one was received before it. A notice that there
// is room is kept as well, so that earlier notices do not count.
func (l *Link) Keep(id NoticeID, n Notice, now int64) (counts bool) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	was, found := s.byID[id]
	room := was.Until == 0 || n.Until == 0
	if found && n.Now < was.Now && (n.Gen < was.Gen || n.Gen == was.Gen && room) {
		return false
	}
	if !found || n.Until == 0 || was.Until == 0 || n.Until > was.Until || n.Limit > was.Limit || n.Shape != was.Shape {
		s.byID[id] = keptNotice{n, now}
	}
	if len(s.byID) > s.most {
		s.dropOne(id)
	}
	s.count.Store(int64(len(s.byID)))
	return true
}

// Forget drops the notice of a counter: Redis has answered since.
func (l *Link) Forget(id NoticeID) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
	s.count.Store(int64(len(s.byID)))
}

// Missed returns the notice that was received after since, our time in ns. It is for a counter that
// existed then but had no answer yet, and so was not found when the notice arrived.
func (l *Link) Missed(id NoticeID, since int64) (n Notice, ok bool) {
	s := &l.notices
	if s.count.Load() == 0 {
		return n, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, found := s.byID[id]
	return k.Notice, found && k.heard > since
}

// SweepNotices drops the notices that are over.
func (l *Link) SweepNotices(over func(Notice) bool) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.byID {
		if over(n.Notice) {
			delete(s.byID, id)
		}
	}
	s.count.Store(int64(len(s.byID)))
}

// Kept returns how many notices are kept.
func (l *Link) Kept() int { return int(l.notices.count.Load()) }

// ID returns the identifier of c, which has a link with notices, in notices.
func (c *Counter) ID() NoticeID {
	return c.part.link.notices.name(c.part.shard, c.Rule(), c.key, c.hashed)
}

// kept returns the notice that is kept for a new counter c of the shard of p, nil if there is none.
func (l *Link) kept(c *Counter, rule *limit.Rule, p *Part) *heardNotice {
	off, sure := p.clock()
	if l.notices.count.Load() == 0 || modeDegraded(p.mode.Load()) || !sure {
		return nil
	}
	id := l.notices.name(p.shard, rule, c.key, c.hashed)
	l.notices.mu.Lock()
	n, found := l.notices.byID[id]
	l.notices.mu.Unlock()
	if !found || n.Until == 0 {
		return nil
	}
	until := min(n.Until, n.Now+int64(c.rule().Horizon())) - off
	return &heardNotice{Notice: n.Notice, heard: n.heard, until: until}
}

// Hear applies a notice that was received at now. It reports whether the reconciler must put c into
// the normal queue, because there may be room in a key that refuses.
func (c *Counter) Hear(now int64, n Notice) (ask bool) {
	c.lock(now)
	defer c.unlock()
	now = max(now, c.last)
	off, sure := c.part.clock()
	if c.dead || !sure || c.is(quarantined) || modeDegraded(c.part.mode.Load()) || n.Gen < c.gen() && n.Now/1000 < c.gen() {
		return false
	}
	if c.born != noAnswer && n.Now-off < c.freshAt-max(c.part.slack.Load(), 0) {
		return false // the latest answer is of a later time
	}
	if n.Until == 0 {
		return c.hearRoomLocked(now)
	}
	until := min(n.Until, n.Now+int64(c.rule().Horizon())) - off
	if h := c.notice; until <= now || h != nil && h.until >= until && h.Limit >= n.Limit && h.Shape == n.Shape {
		return false
	}
	c.notice = &heardNotice{Notice: n, heard: now, until: until}
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
	if _, full := c.state().FullUntil(c.rule(), now); !full && !bound {
		return false
	}
	c.mark(outdated | inNormal) // it may be in the queue already, until a later time
	return true
}
