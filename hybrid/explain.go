package hybrid

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// explanation is one with what its text needs.
type explanation struct {
	inside.Explanation
	state  State
	policy Fallback
}

func (l *Limiter) explanation(key string, rule *limit.Rule) explanation {
	return explanation{inside.Explanation{Key: key, Rule: rule}, l.State(), l.fallback()}
}

// mostAsked is of how many rules Explain asks Redis: it answers them in some milliseconds.
const mostAsked = 200

// Explain says in words how key is decided under each of some rules, without any under those in use,
// and why: by what is in memory and by what Redis says now. Each rule has a line. It consumes nothing
// and is for people: in a support tool, for example.
//
// It asks Redis in one round trip, unless the limiter is degraded. The error is that of
// [Limiter.CheckRule].
func (l *Limiter) Explain(ctx context.Context, key string, rules ...*limit.Rule) (string, error) {
	list, err := view{l}.Explain(ctx, key, rules...)
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "%v: %s\n", e.Rule, e.Text)
	}
	return b.String(), err
}

// Explain implements [inside.View].
func (v view) Explain(ctx context.Context, key string, rules ...*limit.Rule) ([]inside.Explanation, error) {
	if len(rules) == 0 {
		rules = v.Rules()
	}
	l := v.Limiter
	list := make([]explanation, 0, len(rules))
	var unused []explanation
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
	all := make([]inside.Explanation, len(list))
	for i := range list {
		list[i].Text = list[i].text()
		all[i] = list[i].Explanation
	}
	return all, nil
}

// explain says what is known in memory.
func (l *Limiter) explain(key string, rule *limit.Rule) explanation {
	e := l.explanation(key, rule)
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
func (e *explanation) fill(c *counter.Counter, now int64) bool {
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
func (d *driver) askStored(ctx context.Context, key string, list []explanation) {
	if s := d.state.Load(); s.Mode == Degraded || s.Mode == Closed {
		for i := range list {
			list[i].Redis = &inside.Stored{Err: &UnavailableError{Reason: cmp.Or(s.Reason, "closed"), err: s.Err}}
		}
		return
	}
	asks := make([]redisstore.Ask, len(list))
	for i, e := range list {
		asks[i] = redisstore.Ask{Counter: d.store.Keyspace().CounterKey(e.Rule, key), Rule: e.Rule, Units: 1}
	}
	for i, is := range d.store.LookAt(ctx, asks) {
		list[i].Redis = &inside.Stored{Used: is.Used, Result: is.Result}
		if is.Err != nil {
			list[i].Redis.Err = public(is.Err)
		}
	}
}

// Rules implements [inside.View].
func (v view) Rules() []*limit.Rule {
	l := v.Limiter
	if l == nil || l.table == nil {
		return nil
	}
	return l.table.Rules()
}

// nearestSample is how many keys Nearest looks at: it locks each for a moment.
const nearestSample = 100_000

// Nearest implements [inside.View].
func (v view) Nearest(most int) (nearest []inside.Explanation) {
	l := v.Limiter
	most = min(most, 1000)
	if l == nil || l.table == nil || most <= 0 {
		return nil
	}
	var list []explanation
	now, state, fallback := l.now(), l.State(), l.fallback()
	l.table.Sample(nearestSample, func(c *counter.Counter) {
		e := explanation{inside.Explanation{Key: c.Key(), Rule: c.Rule()}, state, fallback}
		if !e.fill(c, now) || e.isUnused() {
			return
		}
		if list = append(list, e); len(list) >= 2*most+64 {
			list = fullest(list, most)
		}
	})
	for _, e := range fullest(list, most) {
		nearest = append(nearest, e.Explanation)
	}
	return nearest
}

// isUnused reports whether nothing of the key is used. In an outage less than the limit is left all the
// same: the share of the node.
func (e *explanation) isUnused() bool {
	if e.state.Mode == LocalOnly {
		return e.Result.Remaining >= e.Result.Limit
	}
	return e.Known <= 0 && e.Pending <= 0 && e.Notice.IsZero() && !e.Quarantined
}

// fullest returns the explanations with the least left of their limits, in that order.
func fullest(list []explanation, most int) []explanation {
	slices.SortFunc(list, func(a, b explanation) int {
		return cmp.Or(cmp.Compare(a.left(), b.left()), cmp.Compare(b.Known+b.Pending, a.Known+a.Pending), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Rule.Name(), b.Rule.Name()))
	})
	return list[:min(len(list), most)]
}

// left returns which part of the limit is left. A dry run has what the rule leaves.
func (e *explanation) left() float64 {
	if e.Result.Limit <= 0 {
		return 0
	}
	return float64(e.Result.Remaining) / float64(e.Result.Limit)
}
