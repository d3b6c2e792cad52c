package adminlimit

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// mostKeys is how many keys are listed, and of how many rules a look-up shows the key.
const mostKeys = 50

// lookWithin bounds how long a look-up waits for Redis.
const lookWithin = time.Second

// keyRow says how a key is decided.
type keyRow struct {
	Key       string  `json:"key"`                 // of more than 256 bytes the SHA-256 sum
	Exact     string  `json:"key_exact,omitempty"` // in quotes as in Go, if JSON cannot have it as it is
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
	More  int      `json:"more,omitempty"`  // how many more there are
	Err   string   `json:"error,omitempty"` // why Redis could not be asked
}

// answer is what is known of the key under one rule.
type answer struct {
	keyRow
	Text     string `json:"rule_text"`             // the rule with its numbers
	Says     string `json:"says,omitempty"`        // what the rules file says of the key
	Latest   string `json:"latest_rule,omitempty"` // of the latest check, if that had another limit
	InMemory bool   `json:"in_memory"`
	Why      string `json:"why"`
	Class    string `json:"-"`               // of the page: admitted, refused, or not so in Redis
	Redis    *redis `json:"redis,omitempty"` // what Redis says now; nil: it was not asked
}

// redis is what Redis says of a key: what it has, or why that is not known.
type redis struct {
	*stored
	Err string `json:"error,omitempty"`
}

// stored is what Redis has of a key.
type stored struct {
	Used      int64   `json:"used"`
	Remaining int64   `json:"remaining"`
	Allowed   bool    `json:"allowed"`
	Retry     float64 `json:"retry_after_seconds"`
}

func rowOf(e inside.Explanation) keyRow {
	r := keyRow{
		Key: e.Key, Rule: e.Rule.Name(), Allowed: e.Result.Allowed && !e.Result.WouldRefuse, Limit: e.Result.Limit, Remaining: e.Result.Remaining,
		Known: e.Known, Pending: e.Pending, Source: e.Result.Source.String(), Answered: utc(e.Answered), Notice: utc(e.Notice), NoticeUntil: utc(e.NoticeUntil),
		Quarantined: e.Quarantined, Exact: escape.Exact(e.Key),
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
	return p.keys.get(func() []keyRow {
		rows := []keyRow{}
		for _, e := range inside.Of(p.lim).Nearest(mostKeys) {
			rows = append(rows, rowOf(e))
		}
		return rows
	})
}

// errNoRule says that no rule is known for a look-up.
var errNoRule = errors.New("there is no such rule, and no such plan: see the list of rules")

// choice is a rule for a key, and what the rules file says of it.
type choice struct {
	name string // of a key that nothing limits, too
	rule *limit.Rule
	says string
	key  string // under which it counts
}

// choices returns the rules under which a key is looked up: that of a name or, without one, all that it may
// be a key of.
func (p *Page) choices(name, plan, key string) (list []choice, err error) {
	inFile := map[string]bool{}
	if p.o.Rules != nil {
		for _, n := range p.o.Rules.Names() {
			if inFile[n] = true; name != "" && n != name {
				continue
			}
			rule, says := p.o.Rules.Lookup(n, plan, key)
			counted, err := p.o.Rules.CounterKey(n, key)
			if err != nil && name != "" {
				return nil, err
			} else if err != nil {
				continue
			}
			for _, part := range rule.Parts() { // each is counted by itself
				inFile[part.Name()] = true
				list = append(list, choice{n, part, says, counted})
			}
			if rule != nil && rule.Parts() == nil {
				list = append(list, choice{n, rule, says, counted})
			}
		}
	}
	for _, rule := range inside.Of(p.lim).Rules() {
		if (name == "" || rule.Name() == name) && !inFile[rule.Name()] {
			list = append(list, choice{name: rule.Name(), rule: rule, key: key})
		}
	}
	if len(list) == 0 && name+plan != "" {
		return nil, errNoRule
	}
	return list, nil
}

// lookUp explains a key. Without the name of a rule it is explained under all rules under which it
// is in memory, or counts in Redis. It asks Redis once, and once more if some rules count addresses.
func (p *Page) lookUp(ctx context.Context, name, plan, key string) (*look, error) {
	l := &look{Key: key, Plan: plan, Found: []answer{}}
	choices, err := p.choices(name, plan, key)
	if err != nil {
		return nil, err
	}
	says, rules, keys := map[*limit.Rule]string{}, map[string][]*limit.Rule{}, []string{}
	for _, c := range choices {
		if says[c.rule] = c.says; c.rule == limit.Unlimited() {
			l.add(answer{keyRow: keyRow{Key: key, Rule: c.name, Allowed: true}, Text: "unlimited", Says: c.says, Class: "done", Why: "Nothing limits this key."})
		} else {
			if rules[c.key] == nil {
				keys = append(keys, c.key)
			}
			rules[c.key] = append(rules[c.key], c.rule)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	for _, key := range keys {
		found, err := inside.Of(p.lim).Explain(ctx, key, rules[key]...)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if s := e.Redis; s != nil && s.Err != nil {
				l.Err = wordsOf(s.Err)
			}
			if name != "" || e.InMemory || e.Redis != nil && e.Redis.Used > 0 {
				l.add(answerOf(e, says[e.Rule]))
			}
		}
	}
	return l, nil
}

// add adds an answer, if there are not too many.
func (l *look) add(a answer) {
	if len(l.Found) >= mostKeys {
		l.More++
		return
	}
	l.Found = append(l.Found, a)
}

// answerOf says in words what is known of a key.
func answerOf(e inside.Explanation, says string) answer {
	a := answer{keyRow: rowOf(e), Text: e.Rule.String(), Says: says, InMemory: e.InMemory, Why: e.Text}
	if e.Latest != nil {
		a.Latest = e.Latest.String()
	}
	switch s := e.Redis; {
	case s == nil:
	case s.Err != nil:
		a.Redis = &redis{Err: wordsOf(s.Err)}
	default:
		is := &stored{Used: s.Used, Remaining: s.Result.Remaining, Allowed: s.Result.Allowed && !s.Result.WouldRefuse}
		is.Retry, _ = seconds(s.Result.RetryAfter)
		a.Redis = &redis{stored: is}
		if e.Rule.IsExact() && a.Allowed { // Redis decides, unless the node refuses already
			a.Allowed, a.Retry = is.Allowed, is.Retry
		}
	}
	a.Class = classOf(&a)
	return a
}

// classOf returns how an answer is shown. It is unsure while Redis says otherwise than this node.
func classOf(a *answer) string {
	switch is := a.Redis; {
	case a.Allowed && is != nil && is.stored != nil && !is.Allowed:
		return "unsure"
	case a.Allowed:
		return "done"
	}
	return "wrong"
}

// span returns seconds as a text: with a tenth below a minute, in milliseconds below a tenth, else to the
// second, rounded up.
func span(seconds float64) string {
	if seconds > 0 && seconds < 0.1 {
		return strconv.FormatFloat(math.Ceil(1e4*seconds)/10, 'f', -1, 64) + " ms"
	}
	if seconds <= 60 {
		return strconv.FormatFloat(math.Ceil(10*seconds)/10, 'f', -1, 64) + " s"
	}
	return (time.Duration(math.Ceil(min(seconds, 1e9))) * time.Second).String()
}
