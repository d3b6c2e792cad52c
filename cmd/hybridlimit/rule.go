package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// rulesFlags say where rules with a name are.
type rulesFlags struct {
	Rules string `group:"rule" env:"HYBRIDLIMIT_RULES" type:"path" placeholder:"FILE" help:"Rules file. A --rule without = is one of its names."`
	Plan  string `group:"rule" placeholder:"NAME" help:"Plan of the rules file that the key has."`
}

// ruleFlags choose a rule.
type ruleFlags struct {
	Rule string `group:"rule" required:"" placeholder:"RULE" help:"A name in --rules, or NAME=ALGORITHM,LIMIT/PER[,FIELD=VALUE...], or NAME=LIMITS as in 10/s, 500/m."`
	rulesFlags
}

// load reads the rules file; nil if there is none.
func (f rulesFlags) load() (*rules.Set, error) {
	if f.Rules == "" {
		if f.Plan != "" {
			return nil, usage(errors.New("--plan needs --rules"))
		}
		return nil, nil
	}
	set, err := rules.Load(f.Rules)
	if err != nil {
		return nil, usage(fmt.Errorf("the rules file is not valid\n%w", err))
	}
	if f.Plan != "" && !set.HasPlan(f.Plan) {
		return nil, usage(fmt.Errorf("there is no plan %q in %s", f.Plan, f.Rules))
	}
	return set, nil
}

// of returns the rule of a name for a key, as the rules file has it; nil if there is none.
func (f rulesFlags) of(set *rules.Set, name, key string) *limit.Rule {
	if f.Plan != "" {
		return set.ForPlan(name, f.Plan, key)
	}
	return set.For(name, key)
}

// counters returns the rule for each key. It may be [limit.Unlimited]. A key with several limits is
// listed with each of them.
func (f ruleFlags) counters(keys ...string) (each []string, list []*limit.Rule, err error) {
	keys, chosen, err := f.choose(keys)
	for i, rule := range chosen {
		if rule.Parts() == nil {
			each, list = append(each, keys[i]), append(list, rule)
		}
		for _, part := range rule.Parts() {
			if rule.IsExact() {
				part = part.Exact() // they are exact together
			}
			each, list = append(each, keys[i]), append(list, part)
		}
	}
	return each, list, err
}

// choose returns the rule for each key, and the key under which it counts.
func (f ruleFlags) choose(keys []string) (counted []string, list []*limit.Rule, err error) {
	list = make([]*limit.Rule, len(keys))
	if strings.Contains(f.Rule, "=") {
		rule, err := inline(f.Rule)
		for i := range list {
			list[i] = rule
		}
		return keys, list, usage(err)
	}
	set, err := f.load()
	if err != nil {
		return nil, nil, err
	}
	if set == nil {
		return nil, nil, usage(fmt.Errorf("--rule %s is a name: say --rules FILE, or the rule as %s=sliding-window,100/1m", f.Rule, f.Rule))
	}
	for i, key := range keys {
		if list[i] = f.of(set, f.Rule, key); list[i] == nil {
			return nil, nil, usage(fmt.Errorf("there is no rule %q in %s; there are: %s", f.Rule, f.Rules, strings.Join(set.Names(), ", ")))
		}
		key, err := set.CounterKey(f.Rule, key)
		if err != nil {
			return nil, nil, usage(err)
		}
		counted = append(counted, key)
	}
	return counted, list, nil
}

// word is what a value of an inline rule may be: the rules file says what it means.
var word = regexp.MustCompile(`^[A-Za-z0-9_.+/-]+$`)

// inline reads NAME=LIMITS, or NAME=ALGORITHM,LIMIT/PER[,FIELD=VALUE...]. The latter is made into the text of
// a rules file, so that both mean the same and are checked alike.
func inline(text string) (*limit.Rule, error) {
	name, spec, _ := strings.Cut(text, "=")
	if rule, err := limit.Parse(name, spec); err == nil {
		return rule, nil
	}
	parts := strings.Split(spec, ",")
	if strings.Contains(parts[0], "/") { // an algorithm has none
		_, err := limit.Parse(name, spec)
		return nil, fmt.Errorf("--rule %s: %w", text, err)
	}
	form := fmt.Errorf("--rule %s: must be NAME=ALGORITHM,LIMIT/PER[,FIELD=VALUE...], for example api=token-bucket,100/1m,burst=20 or api=calendar,100/month,zone=Europe/Berlin, or NAME=LIMITS, for example api=10/s,500/m", text)
	if len(parts) < 2 {
		return nil, form
	}
	units, per, both := strings.Cut(parts[1], "/")
	if !both {
		return nil, form
	}
	fields := []string{"algorithm", parts[0], "limit", units, "per", per}
	for _, part := range parts[2:] {
		field, value, _ := strings.Cut(part, "=")
		fields = append(fields, field, value)
	}
	for _, f := range fields {
		if !word.MatchString(f) {
			return nil, form
		}
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	var file strings.Builder
	fmt.Fprintf(&file, "rules: {%s: {", quoted)
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&file, "%s: %s, ", fields[i], fields[i+1])
	}
	file.WriteString("}}")
	set, err := rules.Parse("", []byte(file.String()))
	var problems rules.Problems
	if errors.As(err, &problems) {
		var errs []error
		for _, p := range problems {
			field := strings.TrimPrefix(strings.TrimPrefix(p.Field, "rules."), name+".")
			errs = append(errs, fmt.Errorf("--rule %s: %s: %s", text, field, p.Message))
		}
		return nil, errors.Join(errs...)
	}
	return set.Rule(name), err
}

// describe returns a rule in words.
func describe(rule *limit.Rule) string {
	text := fmt.Sprintf("%s: %s, ", screen.Clean(rule.Name()), arith.Of(rule).Algorithm)
	switch arith.Of(rule).Algorithm {
	case arith.TokenBucket:
		text += fmt.Sprintf("%s at once, %s per %s", screen.Count(rule.Limit()), screen.Count(arith.Of(rule).Units), screen.Exact(rule.Period()))
	case arith.CalendarQuota:
		text += fmt.Sprintf("%s per %s", screen.Count(rule.Limit()), screen.Clean(arith.Of(rule).Calendar.String()))
	default:
		text += fmt.Sprintf("%s per %s", screen.Count(rule.Limit()), screen.Exact(rule.Period()))
	}
	if rule.IsExact() {
		text += ", exact"
	}
	if rule.IsDryRun() {
		text += ", dry run"
	}
	return text
}

// ruleJSON is a rule for programs.
type ruleJSON struct {
	Name      string  `json:"name"`
	Algorithm string  `json:"algorithm"`
	Limit     int64   `json:"limit"`
	Refill    int64   `json:"refill,omitempty"` // units per period of a token bucket
	Period    float64 `json:"period_seconds"`
	Calendar  string  `json:"calendar,omitempty"` // the periods of a quota
	Exact     bool    `json:"exact,omitempty"`
	DryRun    bool    `json:"dry_run,omitempty"`
}

func ruleOf(rule *limit.Rule) *ruleJSON {
	calendar := ""
	if c := arith.Of(rule).Calendar; c != nil {
		calendar = c.String()
	}
	return &ruleJSON{rule.Name(), arith.Of(rule).Algorithm.String(), rule.Limit(), arith.Of(rule).Units, rule.Period().Seconds(), calendar, rule.IsExact(), rule.IsDryRun()}
}
