package hybrid

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Allow reports whether one unit of key is admitted under rule, and consumes
// it if so.
func (l *Limiter) Allow(key string, rule *limit.Rule) bool { return l.AllowN(key, rule, 1) }

// AllowN reports whether n units are admitted, all or none. 0 units are always admitted. A
// negative n, or a rule that [Limiter.CheckRule] rejects, is refused.
func (l *Limiter) AllowN(key string, rule *limit.Rule, n int64) bool {
	if !l.usable(rule, n) {
		return l.takeParts(key, rule, n).Allowed
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
		return l.takeParts(key, rule, n)
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
	switch {
	case l.usable(rule, 1):
		return l.table.Peek(l.clock, key, rule)
	case !l.combined(rule, 1):
		return l.invalid(key, rule, 1)
	}
	return decision.Tightest(rule, func(part *limit.Rule) limit.Result { return l.Peek(key, part) }).Result
}

// TakeAll decides several checks together, of different keys or rules, or both. If all of
// them admit, each consumes its units; else none does. The result is the answer of the
// check that decided, and says which that was.
//
// Several checks of one key under one rule must be admitted together. Checks of one key
// under rules of one name that differ in more than the limit are refused: each rule would
// convert what the other has counted. A check with a dry run does not stop the others. A
// call without checks is allowed. One invalid check refuses all. Up to 4 checks need no
// allocation.
//
// It is one step on this node. The keys are reported to Redis one by one, as with any
// check. Refused units are never reported.
func (l *Limiter) TakeAll(checks ...limit.Check) limit.AllResult {
	if all, of := decision.Expand(checks); of != nil {
		return decision.Original(l.TakeAll(all...), of)
	}
	for i := range checks {
		if !l.usable(checks[i].Rule, cmp.Or(checks[i].N, 1)) {
			return l.invalidAll(checks, i)
		}
	}
	if i := decision.Mistaken(checks); i >= 0 {
		return l.invalidAll(checks, i)
	}
	if len(checks) == 0 {
		return decision.None()
	}
	var few [table.FewChecks]limit.Result
	out := few[:min(len(checks), table.FewChecks)]
	if len(checks) > table.FewChecks {
		out = make([]limit.Result, len(checks))
	}
	v := l.table.TakeAll(checks, l.now(), out)
	l.countAll(checks, out, &v)
	return v
}

// countAll counts the decisions of an admitted TakeAll, or its one refusal.
func (l *Limiter) countAll(checks []limit.Check, out []limit.Result, v *limit.AllResult) {
	if !v.Allowed {
		l.count(checks[v.By].Rule, cmp.Or(checks[v.By].N, 1), v.Result)
		return
	}
	for i := range checks {
		l.count(checks[i].Rule, cmp.Or(checks[i].N, 1), out[i])
	}
}

// invalid counts and reports an invalid check, and returns the answer to it.
func (l *Limiter) invalid(key string, rule *limit.Rule, n int64) limit.Result {
	res := decision.Invalid(rule)
	if l == nil {
		return res
	}
	l.tally.Of(rule).Invalid()
	if l.table == nil {
		return res
	}
	err, cause := l.CheckRule(rule), causeNames
	switch {
	case !rule.Valid():
		cause = causeRule
	case err != nil:
		cause = causeKind
	case n < 0:
		cause, err = causeN, fmt.Errorf("hybrid: %w: %d", limit.ErrInvalidN, n)
	default:
		err = fmt.Errorf("hybrid: %w: %v shares its name with another rule in this call, which has another period, rate or number of buckets",
			limit.ErrUnsupported, rule)
	}
	if !l.misuse[cause].Swap(true) {
		l.notify.happened(Event{Kind: EventInvalid, Time: time.Unix(0, l.now()), Reason: "an invalid check is denied", Key: key, Err: err})
	}
	return res
}

// invalidAll is invalid for several checks, of which check i is invalid.
func (l *Limiter) invalidAll(checks []limit.Check, i int) limit.AllResult {
	q := &checks[i]
	return limit.AllResult{Result: l.invalid(q.Key, q.Rule, q.N), By: i, Rule: q.Rule}
}

// conflict reports that two rules of one name are in use that count differently. It is
// called while the table holds locks, so it must not block.
func (l *Limiter) conflict(was, is *limit.Rule) {
	l.notify.happened(Event{Kind: EventConflict, Time: time.Unix(0, l.now()),
		Reason: fmt.Sprintf("two rules of one name count differently, so neither limits a key that both are used for: %v; %v", was, is)})
}

// rebuilt reports that a rule is built anew for each check. It must not block either.
func (l *Limiter) rebuilt(rule *limit.Rule) {
	l.notify.happened(Event{Kind: EventConflict, Time: time.Unix(0, l.now()),
		Reason: fmt.Sprintf("a rule is built anew for each check, which is slow: build it once and keep it: %v", rule)})
}

// crowded reports that there are more keys than the limiter can remember, or report.
func (l *Limiter) crowded(s table.Stats) {
	l.notify.happened(Event{Kind: EventCrowded, Time: time.Unix(0, l.now()),
		Reason: fmt.Sprintf("more keys are in use than MaxKeys: %d have left memory, %d of at most %d are remembered; since the start %d were forgotten although their units still counted, and %d units were lost for other nodes",
			s.Forgotten, s.Remembered, s.RememberedRoom, s.Displaced, s.Unreported)})
}
