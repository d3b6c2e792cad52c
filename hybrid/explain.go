package hybrid

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Explanation says how a limiter decides a key now, and on what knowledge. [Explanation.String] has
// it in words.
type Explanation struct {
	// Key is the key. Of a key of more than 256 bytes [Limiter.Nearest] knows only the SHA-256
	// sum, in hexadecimal digits.
	Key string
	// Rule is the rule that the key is decided by.
	Rule *limit.Rule
	// Latest is the rule of the latest check on this node, if that has another limit: then Result
	// is not what that caller was answered.
	Latest *limit.Rule
	// Result is the answer to a check for one unit, which is not made: RetryAfter says when the
	// next unit fits, and Source on what the answer rests.
	Result limit.Result
	// InMemory is set if this node has a counter of the key: it was used lately. What follows is
	// zero otherwise.
	InMemory bool
	// Known is how many units count as far as Redis has said, and Answered when it has said so,
	// by the limiter's clock; zero: it has not.
	Known    int64
	Answered time.Time
	// Pending is how many units were admitted here that Redis has not confirmed.
	Pending int64
	// Notice is when another node has announced that the key is used up, if that is why it is
	// refused, and NoticeUntil until when. Zero: there is no such notice; Notice is zero also if the
	// key is not in memory.
	Notice, NoticeUntil time.Time
	// Quarantined is set if Redis cannot use the key, see [EventQuarantined].
	Quarantined bool
	// State and Fallback are those of the limiter.
	State    State
	Fallback Fallback
	// Redis is what Redis says, if it was asked.
	Redis *Stored
}

// Stored is what Redis has of a key.
type Stored struct {
	// Used is how many units count there, those above the limit included.
	Used int64
	// Result is the answer of Redis to a check for one unit.
	Result limit.Result
	// Err says why there is no answer: an [*UnavailableError], or a [*limit.KeyError] if the key
	// is unusable. Then the rest is zero.
	Err error
}

// mostAsked is of how many rules Explain asks Redis: it answers them in some milliseconds.
const mostAsked = 200

// Explain says how key is decided under each of some rules, without any under those in use (see
// [Limiter.Rules]), and why: by what is in memory and by what Redis says now. It consumes nothing, and is
// for people and their tools.
//
// It asks Redis in one round trip, about 200 rules at most, those first under which the key is in
// memory. While the limiter is degraded it does not ask. The error is that of [Limiter.CheckRule];
// that Redis cannot be reached is in [Stored].Err.
func (l *Limiter) Explain(ctx context.Context, key string, rules ...*limit.Rule) ([]Explanation, error) {
	if len(rules) == 0 {
		rules = l.Rules()
	}
	list := make([]Explanation, 0, len(rules))
	var unused []Explanation
	for _, rule := range rules {
		if err := l.CheckRule(rule); err != nil {
			return nil, err
		}
		for _, part := range decision.AppendParts(nil, key, rule, 1) {
			if e := l.explain(key, part.Rule); e.InMemory {
				list = append(list, e)
			} else {
				unused = append(unused, e)
			}
		}
	}
	list = append(list, unused...)
	if l != nil && l.driver != nil {
		l.driver.askStored(decision.Given(ctx), key, list[:min(len(list), mostAsked)])
	}
	return list, nil
}

// explain says what is known in memory.
func (l *Limiter) explain(key string, rule *limit.Rule) Explanation {
	e := Explanation{Key: key, Rule: rule, State: l.State(), Fallback: l.Fallback()}
	if l == nil || l.table == nil {
		e.Result = l.Peek(key, rule)
		return e
	}
	c := l.table.Find(key, rule)
	if c != nil {
		if latest := c.Rule(); latest.Limit() != rule.Limit() {
			e.Latest = latest
		}
	}
	e.Result = l.Peek(key, rule) // by this rule, whatever the latest was
	if c != nil {
		e.fill(c, l.now())
	}
	if e.Result.Source == limit.SourceNotice && e.NoticeUntil.IsZero() && e.Result.RetryAfter != limit.Never { // no counter knows when it came
		e.NoticeUntil = time.Unix(0, l.now()+int64(e.Result.RetryAfter))
	}
	return e
}

// fill adds what a counter knows. It reports whether the counter is still in use.
func (e *Explanation) fill(c *counter.Counter, now int64) bool {
	x, ok := c.Explain(now)
	if !ok {
		return false
	}
	e.InMemory, e.Known, e.Pending, e.Quarantined = true, x.Known, x.Pending, x.Quarantined
	e.Result = decision.Judged(e.Rule, x.Result)
	if x.Answered != 0 {
		e.Answered = time.Unix(0, x.Answered)
	}
	if x.Received != 0 {
		e.Notice, e.NoticeUntil = time.Unix(0, x.Received), time.Unix(0, x.Until)
	}
	return true
}

// askStored asks Redis about a key under the rules of a list, unless Redis is away.
func (d *driver) askStored(ctx context.Context, key string, list []Explanation) {
	if s := d.state.Load(); s.Mode == Degraded || s.Mode == Closed {
		for i := range list {
			list[i].Redis = &Stored{Err: &UnavailableError{Reason: cmp.Or(s.Reason, "closed"), Err: s.Err}}
		}
		return
	}
	asks := make([]redisstore.Ask, len(list))
	for i, e := range list {
		asks[i] = redisstore.Ask{Counter: d.store.Keyspace().CounterKey(e.Rule, key), Rule: e.Rule, Units: 1}
	}
	for i, is := range d.store.LookAt(ctx, asks) {
		list[i].Redis = &Stored{Used: is.Used, Result: is.Result}
		if is.Err != nil {
			list[i].Redis.Err = public(is.Err)
		}
	}
}

// Rules returns the rules in use, in the order of their names: of each name the latest, or one that
// differs from it only in the limit. Of more than 1,024 names some are missing.
func (l *Limiter) Rules() []*limit.Rule {
	if l == nil || l.table == nil {
		return nil
	}
	return l.table.Rules()
}

// nearestSample is how many keys Nearest looks at: it locks each for a moment.
const nearestSample = 100_000

// Nearest returns the keys in memory that have the least left of their limits, of the fullest first:
// at most as many as most, which is at most 1,000. It looks at 100,000 keys in memory at most, which
// takes some 20 ms, and does not ask Redis. Keys of which nothing is used are left out.
func (l *Limiter) Nearest(most int) []Explanation {
	most = min(most, 1000)
	if l == nil || l.table == nil || most <= 0 {
		return nil
	}
	var list []Explanation
	now, state, fallback := l.now(), l.State(), l.Fallback()
	l.table.Sample(nearestSample, func(c *counter.Counter) {
		e := Explanation{Key: c.Key(), Rule: c.Rule(), State: state, Fallback: fallback}
		if !e.fill(c, now) || e.isUnused() {
			return
		}
		if list = append(list, e); len(list) >= 2*most+64 {
			list = fullest(list, most)
		}
	})
	return fullest(list, most)
}

// isUnused reports whether nothing of the key is used. In an outage less than the limit is left all the
// same: the share of the node.
func (e *Explanation) isUnused() bool {
	if e.State.Mode == LocalOnly {
		return e.Result.Remaining >= e.Result.Limit
	}
	return e.Known <= 0 && e.Pending <= 0 && e.Notice.IsZero() && !e.Quarantined
}

// fullest returns the explanations with the least left of their limits, in that order.
func fullest(list []Explanation, most int) []Explanation {
	slices.SortFunc(list, func(a, b Explanation) int {
		return cmp.Or(cmp.Compare(a.left(), b.left()), cmp.Compare(b.Known+b.Pending, a.Known+a.Pending), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Rule.Name(), b.Rule.Name()))
	})
	return list[:min(len(list), most)]
}

// left returns which part of the limit is left. A dry run has what the rule leaves.
func (e *Explanation) left() float64 {
	if e.Result.Limit <= 0 {
		return 0
	}
	return float64(e.Result.Remaining) / float64(e.Result.Limit)
}
