package local

import "github.com/hybridlimit/hybridlimit/limit"

// takeKey is answerKey with the whole answer, for one unit that is admitted by a rule of
// takesFromSlots: of that a slot knows all that there is to say. A refusal has to say
// until when, and a window how old its units are, which only the counter knows. Unless it
// is to book, it consumes nothing.
func (l *lodge) takeKey(s *slot, key string, h uint64, rule *limit.Rule, now int64, book bool) (res limit.Result, ok bool) {
	if len(key) <= inlineKey {
		return l.take(s, signOf(key), rule, now, book)
	}
	var m middle
	k, ok := l.signOf(s, key, h, &m)
	if !ok {
		return res, false
	}
	return l.take(s, k, rule, now, book)
}

// take is takeKey for the key of a sign. The rule is one of takesFromSlots.
func (l *lodge) take(s *slot, k sign, rule *limit.Rule, now int64, book bool) (res limit.Result, ok bool) {
	for {
		w := s.word.Load()
		t := l.termsFrom(s, k, rule)
		if t == nil {
			return res, false
		}
		is, level, v := t.decide(w, now)
		switch {
		case v != Admitted:
			return res, false
		case !book:
			level -= t.one << t.coarse
			ok = s.word.Load() == w
		default:
			ok = s.word.CompareAndSwap(w, is)
		}
		if ok {
			res = rule.TicksResult(level)
			res.Source = t.source
			return res, true
		}
	}
}

// takesFromSlots reports whether slots can give the whole answer under a rule.
func takesFromSlots(rule *limit.Rule) bool { return rule.Ticks().PerNS != 0 }
