package hybrid

import (
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

var hundred = limit.Must(limit.FixedWindow("hundred", 100, time.Hour))

// Each explanation is a sentence that is true of it, also one that nobody has filled.
func TestExplanationInWords(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 4, 5, 0, time.FixedZone("", 3600))
	full := limit.Result{Limit: 5, RetryAfter: time.Second, Source: limit.SourceSynced}
	from := func(res limit.Result, s limit.Source) limit.Result { res.Source = s; return res }
	some := limit.Result{Allowed: true, Limit: 5, Remaining: 3, Source: limit.SourceSynced}
	away := State{Mode: Degraded, Nodes: 3}
	for name, c := range map[string]struct {
		e    explanation
		want string
	}{
		"zero":        {explanation{Explanation: inside.Explanation{}}, "There is no rule: a check is refused."},
		"unlimited":   {explanation{Explanation: inside.Explanation{Rule: limit.Unlimited()}}, "Nothing limits this key."},
		"invalid":     {explanation{Explanation: inside.Explanation{Rule: hundred, Result: limit.Result{Source: limit.SourceInvalid}}}, "The limiter cannot decide by this rule: a check is refused."},
		"blocked":     {explanation{Explanation: inside.Explanation{Rule: hundred, Result: limit.Result{Source: limit.SourceSynced}}}, "The rule has a limit of 0: the key is blocked."},
		"dry run":     {explanation{Explanation: inside.Explanation{Rule: hundred, Result: limit.Result{Allowed: true, WouldRefuse: true, Limit: 5}}}, "The rule is a dry run: it would refuse, and lets the check pass."},
		"quarantined": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: full, Quarantined: true}, policy: FailOpen}, "Redis cannot use this key, because another program has written to it. The fallback fail-open decides."},
		"left":        {explanation{Explanation: inside.Explanation{Rule: hundred, Result: some, InMemory: true}}, "3 of 5 are left."},
		"used up in Redis": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: some, InMemory: true, Redis: &inside.Stored{Used: 5, Result: full}}},
			"The limit is used up in Redis, and this node has not heard of it yet: it would admit a check."},
		"used up in Redis, exact": {explanation{Explanation: inside.Explanation{Rule: hundred.Exact(), Result: some, InMemory: true, Redis: &inside.Stored{Used: 5, Result: full}}},
			"The limit is used up in Redis, which decides: a check is refused."},
		"Redis was not asked": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: some, InMemory: true, Redis: &inside.Stored{Err: errors.New("away")}}}, "3 of 5 are left."},
		"not seen":            {explanation{Explanation: inside.Explanation{Rule: hundred, Result: some}}, "This node has not seen the key lately. A check is admitted, and then Redis is asked."},
		"new, local":          {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(some, limit.SourceLocal)}}, "This process has not seen the key lately: a check is admitted."},
		"full, local":         {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(full, limit.SourceLocal), InMemory: true}}, "The limit of 5 is used up in this process, which shares it with no other."},
		"full": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: full, InMemory: true, Known: 4, Pending: 1, Answered: at}},
			"The limit of 5 is used up: 4 units counted when Redis last answered, at 12:04:05 UTC, and 1 more was admitted here."},
		"full, one unit": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: full, InMemory: true, Known: 1, Pending: 4, Answered: at}},
			"The limit of 5 is used up: 1 unit counted when Redis last answered, at 12:04:05 UTC, and 4 more were admitted here."},
		"full, unknown": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(full, limit.SourceUnsynced), InMemory: true, Pending: 5}},
			"The limit of 5 is used up: 5 units were admitted here of which Redis does not know."},
		"notice": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(full, limit.SourceNotice), InMemory: true, NoticeUntil: at}},
			"Another node has announced that the key is used up, until 12:04:05 UTC."},
		"fair share": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(full, limit.SourceDegraded), InMemory: true, Pending: 2}, state: away},
			"Redis is away, and the fallback fair-share decides: this node admits 1/3 of the limit by itself. That is used up: 2 units were admitted here of which Redis does not know."},
		"fair share, left": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(some, limit.SourceDegraded)}, state: State{Mode: Degraded}},
			"Redis is away, and the fallback fair-share decides: this node admits the whole limit by itself. 3 are left."},
		"full limit": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(some, limit.SourceDegraded)}, state: away, policy: FullLimit},
			"Redis is away, and the fallback full-limit decides: this node admits the whole limit by itself. 3 are left."},
		"fail open": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(some, limit.SourceDegraded)}, state: away, policy: FailOpen},
			"Redis is away, and the fallback fail-open decides: every check passes that is not larger than the limit."},
		"closed": {explanation{Explanation: inside.Explanation{Rule: hundred, Result: from(full, limit.SourceDegraded)}, state: State{Mode: Closed}, policy: FailClosed},
			"The limiter is closed, and the fallback fail-closed decides: every check is refused."},
	} {
		if got := c.e.text(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A limiter explains by its own state: by its number of nodes and its fallback.
func TestExplainKnowsWhatDecides(t *testing.T) {
	lim := limit.Must(New(nil, Options{}))
	defer lim.Close()
	lim.Allow("k", hundred)
	text, err := lim.Explain(t.Context(), "k", hundred)
	if want := hundred.String() + ": 99 of 100 are left.\n"; err != nil || text != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
	if text, err := lim.Explain(t.Context(), "k", nil); !errors.Is(err, limit.ErrNilRule) || text != "" {
		t.Errorf("%q, %v", text, err)
	}
}
