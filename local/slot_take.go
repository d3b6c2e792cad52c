package local

import "github.com/hybridlimit/hybridlimit/limit"

// takeKey is answerKey with the whole answer, for one unit that is admitted by a rule of
// takesFromSlots: of that a slot knows all that there is to say. A refusal has to say
// until when, and a window how old its units are, which only the counter knows. Unless it
// is to book, it consumes nothing.
func (l *lodge) takeKey(s *slot, key string, h uint64, rule *limit.Rule, now int64, book bool) (res limit.Result, ok bool) {
	if len(key) <= inlineKey {
		return l.take(s, nil, signOf(key), rule, now, book)
	}
	c := s.tenant(key, h)
	if c == nil {
		return res, false
	}
	return l.take(s, c, sign{}, rule, now, book)
}

// take is takeKey for the key of a counter, or of a sign when that is not known. The rule
// is one of takesFromSlots.
func (l *lodge) take(s *slot, c *Counter, k sign, rule *limit.Rule, now int64, book bool) (res limit.Result, ok bool) {
	w := label(s.label.Load())
	if w.refusal() != 0 || !s.belongs(w, c, k) || !l.follows(w, rule) {
		return res, false
	}
	s.mu.Lock()
	ok = label(s.label.Load()) == w && s.belongs(w, c, k) && l.inForce(w, s.season.Load(), rule)
	switch {
	case !ok:
	case book:
		ok = s.admitLocked(rule, now, l.refresh)
	default:
		ok = s.fitsLocked(rule, now, l.refresh)
	}
	hold := s.hold
	s.mu.Unlock()
	if !ok {
		return res, false
	}
	res = rule.TicksResult(hold)
	res.Source = w.source()
	return res, true
}

// fitsLocked reports whether admitLocked would admit a unit of a funnel.
func (s *slot) fitsLocked(rule *limit.Rule, now, refresh int64) bool {
	now = max(now, s.last)
	idle, t := now-s.last, rule.Ticks()
	if s.left == 0 || idle >= refresh || idle > t.Most || now > loanLatest {
		return false
	}
	hold := max(s.hold-idle*t.PerNS, 0)
	if hold > t.Full-t.One {
		return false
	}
	s.hold, s.last = hold, now
	return true
}

// takesFromSlots reports whether slots can give the whole answer under a rule.
func takesFromSlots(rule *limit.Rule) bool { return rule.Ticks().PerNS != 0 }

// belongs is isFor, or isOf when the counter is not known.
func (s *slot) belongs(w label, c *Counter, k sign) bool {
	if c != nil {
		return s.isFor(c)
	}
	return s.isOf(w, k)
}
