package adminlimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// mostKeys is how many keys are listed.
const mostKeys = 50

// keyRow says how a key is decided.
type keyRow struct {
	Key       string  `json:"key"` // of more than 256 bytes the SHA-256 sum
	Rule      string  `json:"rule"`
	Allowed   bool    `json:"allowed"` // whether a check for one unit would be admitted
	Limit     int64   `json:"limit"`
	Remaining int64   `json:"remaining"`
	Known     int64   `json:"known"`   // units that count as far as Redis has said
	Pending   int64   `json:"pending"` // units that were admitted here, and that Redis has not confirmed
	Retry     float64 `json:"retry_after_seconds"`
	Never     bool    `json:"never,omitempty"` // waiting does not help
	Source    string  `json:"source"`
	// Answered is when Redis last answered about the key, Notice and NoticeUntil those of the
	// notice that refuses it.
	Answered    time.Time `json:"answered,omitzero"`
	Notice      time.Time `json:"notice,omitzero"`
	NoticeUntil time.Time `json:"notice_until,omitzero"`
	Quarantined bool      `json:"quarantined,omitempty"`
}

// look is a key that was looked up.
type look struct {
	Key   string   `json:"key"`
	Plan  string   `json:"plan,omitempty"`
	Found []answer `json:"found"`
	Err   string   `json:"error,omitempty"` // why Redis could not be asked
}

// answer is what is known of the key under one rule.
type answer struct {
	keyRow
	Text     string `json:"rule_text"`      // the rule with its numbers
	Says     string `json:"says,omitempty"` // what the rules file says of the key
	InMemory bool   `json:"in_memory"`
	Why      string `json:"why"`
	Redis    *redis `json:"redis,omitempty"` // what Redis says now; nil: it was not asked
}

// redis is what Redis has of a key.
type redis struct {
	Used      int64   `json:"used"`
	Remaining int64   `json:"remaining"`
	Allowed   bool    `json:"allowed"`
	Retry     float64 `json:"retry_after_seconds"`
	Err       string  `json:"error,omitempty"`
}

func rowOf(e hybrid.Explanation) keyRow {
	r := keyRow{
		Key: e.Key, Rule: e.Rule.Name(), Allowed: e.Result.Allowed && !e.Result.WouldRefuse, Limit: e.Result.Limit, Remaining: e.Result.Remaining,
		Known: e.Known, Pending: e.Pending, Source: e.Result.Source.String(), Answered: utc(e.Answered), Notice: utc(e.Notice), NoticeUntil: utc(e.NoticeUntil),
		Quarantined: e.Quarantined,
	}
	r.Retry, r.Never = seconds(e.Result.RetryAfter)
	return r
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

func seconds(d time.Duration) (s float64, never bool) {
	if d == limit.Never {
		return 0, true
	}
	return d.Seconds(), false
}

// nearest returns the keys that have the least left.
func (p *Page) nearest() []keyRow {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys.get(clock.System{}.Now(), func() []keyRow {
		rows := []keyRow{}
		for _, e := range p.lim.Nearest(mostKeys) {
			rows = append(rows, rowOf(e))
		}
		return rows
	})
}

// errNoRule says that no rule is known for a look-up.
var errNoRule = errors.New("there is no such rule, and no such plan: see the list of rules")

// choice is a rule for a key, and what the rules file says of it.
type choice struct {
	rule *limit.Rule
	says string
}

// choices returns the rules under which a key is looked up: that of a name or, without one, all.
func (p *Page) choices(name, plan, key string) (list []choice) {
	inFile := map[string]bool{}
	if p.o.Rules != nil {
		for _, n := range p.o.Rules.Names() {
			if inFile[n] = true; name != "" && n != name {
				continue
			}
			if rule, says := p.o.Rules.Lookup(n, plan, key); rule != nil && len(list) < mostKeys {
				list = append(list, choice{rule, says})
			}
		}
	}
	for _, rule := range p.lim.Rules() {
		if (name == "" || rule.Name() == name) && !inFile[rule.Name()] && len(list) < mostKeys {
			list = append(list, choice{rule: rule})
		}
	}
	return list
}

// lookUp explains a key. Without the name of a rule it is explained under all rules under which it
// is in memory, or counts in Redis.
func (p *Page) lookUp(ctx context.Context, name, plan, key string) (*look, error) {
	l := &look{Key: key, Plan: plan, Found: []answer{}}
	choices := p.choices(name, plan, key)
	if len(choices) == 0 && name+plan != "" {
		return nil, errNoRule
	}
	state := p.lim.State()
	for _, c := range choices {
		a, ok := p.explain(ctx, c, key, state)
		if ok || name != "" {
			l.Found = append(l.Found, a)
		}
		if a.Redis != nil && a.Redis.Err != "" {
			l.Err = a.Redis.Err
		}
	}
	return l, nil
}

// explain explains a key under one rule. It reports whether anything is known of it.
func (p *Page) explain(ctx context.Context, c choice, key string, state hybrid.State) (a answer, known bool) {
	a = answer{keyRow: keyRow{Key: key, Rule: c.rule.Name()}, Text: c.rule.String(), Says: c.says}
	if c.rule == limit.Unlimited() {
		a.Allowed, a.Why = true, "Nothing limits this key."
		return a, true
	}
	e, err := p.lim.Explain(ctx, key, c.rule)
	if err != nil {
		a.Why = err.Error()
		return a, true
	}
	a.keyRow, a.InMemory, a.Why = rowOf(e), e.InMemory, why(e, state)
	if s := e.Redis; s != nil {
		a.Redis = &redis{Used: s.Used, Remaining: s.Result.Remaining, Allowed: s.Result.Allowed && !s.Result.WouldRefuse}
		a.Redis.Retry, _ = seconds(s.Result.RetryAfter)
		if s.Err != nil {
			a.Redis.Err = s.Err.Error()
		}
	}
	return a, e.InMemory || e.Redis != nil && e.Redis.Used > 0
}

// why says in a sentence or two why a key is admitted or refused.
func why(e hybrid.Explanation, state hybrid.State) string {
	res := e.Result
	switch {
	case e.Quarantined:
		return "Redis cannot use this key, because another program has written to it. The fallback decides."
	case res.WouldRefuse:
		return "The rule is a dry run: it would refuse, and lets the check pass."
	case res.Allowed && !e.InMemory:
		return "This node has not seen the key lately. A check is admitted, and then Redis is asked."
	case res.Allowed:
		return fmt.Sprintf("%d of %d are left.", res.Remaining, res.Limit)
	case res.Limit == 0:
		return "The rule has a limit of 0: the key is blocked."
	case res.Source == limit.SourceNotice:
		return "Another node has announced that the key is used up, until " + e.NoticeUntil.UTC().Format(time.TimeOnly) + " UTC."
	case res.Source == limit.SourceDegraded && state.Mode == hybrid.Degraded:
		return fmt.Sprintf("Redis is away, and the fallback decides: with fair-share this node admits 1/%d of the limit. %s", state.Nodes, counted(e))
	case !e.InMemory:
		return "A check is refused."
	}
	return fmt.Sprintf("The limit of %d is used up: %s", res.Limit, counted(e))
}

// counted says what counts, and who knows of it.
func counted(e hybrid.Explanation) string {
	text := fmt.Sprintf("%d units count here alone.", e.Pending)
	if !e.Answered.IsZero() {
		text = fmt.Sprintf("%d units counted when Redis last answered, at %s UTC, and %d more were admitted here.", e.Known, e.Answered.UTC().Format(time.TimeOnly), e.Pending)
	}
	return text
}

// span returns seconds as a text: with a tenth below a minute, else to the second, rounded up.
func span(seconds float64) string {
	if seconds <= 60 {
		return strconv.FormatFloat(math.Ceil(10*seconds)/10, 'f', -1, 64) + " s"
	}
	return (time.Duration(math.Ceil(min(seconds, 1e9))) * time.Second).String()
}
