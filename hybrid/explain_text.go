package hybrid

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// text says in a sentence or two why a check for one unit would be admitted or refused, by which
// numbers, and what decides. Times of day are UTC. The key is not in it.
func (e *explanation) text() string {
	res := e.Result
	switch {
	case e.Rule == limit.Unlimited():
		return "Nothing limits this key."
	case e.Rule == nil:
		return "There is no rule: a check is refused."
	case res.Source == limit.SourceInvalid:
		return "The limiter cannot decide by this rule: a check is refused."
	case e.Quarantined:
		return fmt.Sprintf("Redis cannot use this key, because another program has written to it. The fallback %v decides.", e.policy)
	case res.WouldRefuse:
		return "The rule is a dry run: it would refuse, and lets the check pass."
	case res.Limit == 0:
		return "The rule has a limit of 0: the key is blocked."
	case res.Source == limit.SourceDegraded:
		return e.byFallback()
	case res.Source == limit.SourceNotice:
		return "Another node has announced that the key is used up, until " + e.NoticeUntil.UTC().Format(time.TimeOnly) + " UTC."
	case res.Allowed && e.Redis != nil && e.Redis.Err == nil && !e.Redis.Result.Allowed:
		if e.Rule.IsExact() {
			return "The limit is used up in Redis, which decides: a check is refused."
		}
		return "The limit is used up in Redis, and this node has not heard of it yet: it would admit a check."
	case res.Allowed && !e.InMemory && res.Source == limit.SourceLocal:
		return "This process has not seen the key lately: a check is admitted."
	case res.Allowed && !e.InMemory:
		return "This node has not seen the key lately. A check is admitted, and then Redis is asked."
	case res.Allowed:
		return fmt.Sprintf("%d of %d %s left.", res.Remaining, res.Limit, word(res.Remaining, "is", "are"))
	case res.Source == limit.SourceLocal:
		return fmt.Sprintf("The limit of %d is used up in this process, which shares it with no other.", res.Limit)
	}
	return fmt.Sprintf("The limit of %d is used up: %s", res.Limit, e.counted())
}

// byFallback is String while Redis is away, or after the end of the limiter.
func (e *explanation) byFallback() string {
	text := fmt.Sprintf("Redis is away, and the fallback %v decides: ", e.policy)
	if e.state.Mode == Closed {
		text = fmt.Sprintf("The limiter is closed, and the fallback %v decides: ", e.policy)
	}
	text += e.policy.effect(e.state.Nodes) + "."
	if e.policy == FailOpen || e.policy == FailClosed {
		return text
	}
	text += " "
	if e.Result.Allowed {
		return text + fmt.Sprintf("%d %s left.", e.Result.Remaining, word(e.Result.Remaining, "is", "are"))
	}
	return text + "That is used up: " + e.counted()
}

// counted says what counts, and who knows of it.
func (e *explanation) counted() string {
	if e.Answered.IsZero() {
		return fmt.Sprintf("%d %s admitted here of which Redis does not know.", e.Pending, word(e.Pending, "unit was", "units were"))
	}
	return fmt.Sprintf("%d %s counted when Redis last answered, at %s UTC, and %d more %s admitted here.",
		e.Known, word(e.Known, "unit", "units"), e.Answered.UTC().Format(time.TimeOnly), e.Pending, word(e.Pending, "was", "were"))
}

// word returns the word for one thing, or that for another number of them.
func word(n int64, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
