package counter

import (
	"sync"
	"sync/atomic"

	"github.com/hybridlimit/hybridlimit/limit"
)

// NoticeID names a counter in notices.
type NoticeID [16]byte

// noticeSet keeps notices by the names of counters, so that a counter that is made later obeys
// them. It is bounded: notices are anybody's input who may publish.
type noticeSet struct {
	name  func(shard int, rule *limit.Rule, key string, hashed bool) NoticeID // nil: there are no notices
	most  int
	count atomic.Int64 // of byID, so that most new counters need not look

	mu   sync.Mutex
	byID map[NoticeID]keptNotice
}

type keptNotice struct {
	Notice
	heard int64 // our time, ns
}

// leastNotices is the least bound of the notices that are kept.
const leastNotices = 4096

// SetNotices turns notices on. name returns the name of a counter in them. At most as many are
// kept as there are keys, or leastNotices. Call it before the first check.
func (l *Link) SetNotices(keys int, name func(shard int, rule *limit.Rule, key string, hashed bool) NoticeID) {
	l.notices.name, l.notices.most = name, max(keys, leastNotices)
	l.notices.byID = map[NoticeID]keptNotice{}
}

// SetHearing says whether the notices of other nodes arrive. While they do, keys that refuse ask
// less often, see [RefusedLag]. When they do not any more, leases end.
func (l *Link) SetHearing(on bool) {
	if l.hearing.Swap(on) && !on {
		for i := range l.parts {
			l.parts[i].epoch.n.Add(1)
		}
	}
}

// Keep keeps a notice that was heard at now for counters that are made later. It reports whether
// the notice counts: not if a later one was heard before it. That there is room is kept as well,
// so that notices from before that do not count.
func (l *Link) Keep(id NoticeID, n Notice, now int64) (counts bool) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	was, found := s.byID[id]
	if found && n.Gen < was.Gen && n.Now < was.Now || found && was.Until == 0 && n.Gen <= was.Gen && n.Now < was.Now {
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

// dropOne drops the notice that ends first of a few. Which few is random.
func (s *noticeSet) dropOne(but NoticeID) {
	const few = 8
	var first NoticeID
	seen, until := 0, int64(0)
	for id, n := range s.byID {
		if id == but {
			continue
		}
		if seen == 0 || n.Until < until {
			first, until = id, n.Until
		}
		if seen++; seen == few {
			break
		}
	}
	delete(s.byID, first)
}

// Forget drops the notice of a counter: the authority has answered since.
func (l *Link) Forget(id NoticeID) {
	s := &l.notices
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
	s.count.Store(int64(len(s.byID)))
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

// ID returns the name of c, which has a link with notices, in notices.
func (c *Counter) ID() NoticeID {
	return c.part.link.notices.name(c.part.shard, c.Rule(), c.key, c.hashed)
}

// kept returns the notice that is kept for a new counter c of the shard of p, nil if there is
// none.
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
