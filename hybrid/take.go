package hybrid

import "github.com/hybridlimit/hybridlimit/limit"

// Allow reports whether one unit of key is admitted under rule, and consumes
// it if so.
func (l *Limiter) Allow(key string, rule *limit.Rule) bool { return l.AllowN(key, rule, 1) }

// AllowN reports whether n units are admitted, all or none. 0 units are always admitted. A
// negative n, or a rule that [Limiter.CheckRule] rejects, is refused.
func (l *Limiter) AllowN(key string, rule *limit.Rule, n int64) bool {
	if !l.usable(rule, n) {
		l.invalid(key, rule, n)
		return false
	}
	ok, src, counted := l.table.AllowBy(l.clock, key, rule, n)
	switch {
	case counted && n > 1:
		l.tally.Of(rule).Together(n, src)
	case counted:
	case !ok && rule.IsDryRun():
		l.tally.Of(rule).Pass()
		return true
	case n == 1:
		l.tally.Of(rule).CountOne(ok, src)
	default:
		l.tally.Of(rule).Count(n, ok, src)
	}
	return ok
}

// Take is [Limiter.AllowN] with the whole answer.
func (l *Limiter) Take(key string, rule *limit.Rule, n int64) limit.Result {
	if !l.usable(rule, n) {
		return l.invalid(key, rule, n)
	}
	res, counted := l.table.Take(l.clock, key, rule, n)
	if counted {
		return res
	}
	return l.count(rule, n, res)
}

// count counts a decision, and returns it.
func (l *Limiter) count(rule *limit.Rule, n int64, res limit.Result) limit.Result {
	if is := l.tally.Of(rule); res.WouldRefuse {
		is.Pass()
	} else {
		is.Count(n, res.Allowed, res.Source)
	}
	return res
}

// Peek returns what Take of one unit would answer, without consuming it and without
// counting as a decision: Allowed says whether there is room, RetryAfter when there will
// be. A key that is not in memory is described as an unused one.
func (l *Limiter) Peek(key string, rule *limit.Rule) limit.Result {
	if !l.usable(rule, 1) {
		return l.invalid(key, rule, 1)
	}
	return l.table.Peek(l.clock, key, rule)
}
