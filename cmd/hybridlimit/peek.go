package main

import (
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/inspect"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// peekCmd shows keys.
type peekCmd struct {
	Keys []string `arg:"" name:"key" help:"Keys, as limiters are asked for them."`
	ruleFlags
	redisFlags
}

// keyJSON is what is known of a key, for programs.
type keyJSON struct {
	Key       string    `json:"key"`
	Exact     string    `json:"key_exact,omitempty"` // in quotes as in Go, if JSON cannot have it as it is
	Unlimited bool      `json:"unlimited,omitempty"` // then there is nothing else
	Rule      *ruleJSON `json:"rule,omitempty"`
	Used      int64     `json:"used"`
	Remaining int64     `json:"remaining"`
	Allowed   bool      `json:"allowed"`             // whether one unit would be
	Retry     *float64  `json:"retry_after_seconds"` // null: never
	Reset     float64   `json:"reset_after_seconds"`
}

// look is a key and what was seen of it.
type look struct {
	key  string
	rule *limit.Rule
	seen redisstore.Seen
}

func (l look) json() keyJSON {
	if l.rule == limit.Unlimited() {
		return keyJSON{Key: l.key, Exact: escape.Exact(l.key), Unlimited: true, Allowed: true, Retry: screen.Seconds(0)}
	}
	res := l.seen.Result
	return keyJSON{
		Key: l.key, Exact: escape.Exact(l.key), Rule: ruleOf(l.rule), Used: l.seen.Used, Remaining: res.Remaining, Allowed: res.Allowed,
		Retry: screen.Seconds(res.RetryAfter), Reset: res.ResetAfter.Seconds(),
	}
}

// looks asks for keys, all in one pipeline. The error is the first one.
func (p *program) looks(s *store, keys []string, list []*limit.Rule) ([]look, error) {
	out := make([]look, len(keys))
	var ask []inspect.Look
	var asked []int
	for i, key := range keys {
		out[i] = look{key: key, rule: list[i]}
		if list[i] == limit.Unlimited() {
			continue
		}
		space := s.survey.Keyspace()
		name, ok := inspect.Parse(space, space.CounterKey(list[i], key))
		if !ok {
			panic("the name of a counter is not taken for one") // both are of one package
		}
		ask, asked = append(ask, inspect.Look{Name: name, Rule: list[i]}), append(asked, i)
	}
	for i, seen := range s.survey.Peek(p.ctx, ask) {
		if seen.Err != nil {
			return nil, s.failed(seen.Err)
		}
		out[asked[i]].seen = seen
	}
	return out, nil
}

// Run shows the keys.
func (c *peekCmd) Run(p *program) error {
	keys, list, err := c.counters(c.Keys...)
	if err != nil {
		return err
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.Close()
	looks, err := p.looks(s, keys, list)
	if err != nil {
		return err
	}
	p.warnOfLayout(s, prefixScan)
	return p.show(looks)
}

// show prints keys.
func (p *program) show(looks []look) error {
	if p.JSON {
		out := make([]keyJSON, len(looks))
		for i, l := range looks {
			out[i] = l.json()
		}
		return p.Object(struct {
			Keys []keyJSON `json:"keys"`
		}{out})
	}
	t := &screen.Table{Columns: keyColumns}
	rules := map[string]bool{}
	for _, l := range looks {
		t.Rows = append(t.Rows, l.row())
		if l.rule != limit.Unlimited() {
			rules[describe(l.rule)] = true
		}
	}
	if err := p.Table(t); err != nil {
		return err
	}
	for _, text := range sorted(rules) {
		if err := p.Line(screen.Faint, 2, "%s", text); err != nil {
			return err
		}
	}
	return nil
}

var keyColumns = []screen.Column{
	{Title: "KEY", Least: 12, Tell: true}, {Title: "RULE", Least: 8}, {Title: "USED", Right: true}, {Title: "LIMIT", Right: true},
	{Title: "LEFT", Right: true}, {Title: "NEXT", Right: true}, {Title: "UNUSED IN", Right: true},
}

// row returns what is known of a key, one cell per column of keyColumns.
func (l look) row() []screen.Cell {
	if l.rule == limit.Unlimited() {
		return []screen.Cell{{Text: escape.Distinct(l.key)}, {Text: "unlimited"}, {}, {}, {}, {Text: "now", Style: screen.Good}, {}}
	}
	res := l.seen.Result
	next := screen.Cell{Text: "now", Style: screen.Good}
	if !res.Allowed || res.WouldRefuse {
		next = screen.Cell{Text: "in " + screen.Wait(res.RetryAfter), Style: screen.Bad}
		if res.RetryAfter == limit.Never {
			next.Text = "never"
		}
	}
	return []screen.Cell{
		{Text: escape.Distinct(l.key)}, {Text: screen.Clean(l.rule.Name())},
		{Text: screen.Count(l.seen.Used), Style: styleOf(l.seen.Used, res.Limit)}, {Text: screen.Count(res.Limit)},
		{Text: screen.Count(res.Remaining)}, next, {Text: screen.Wait(res.ResetAfter)},
	}
}

// styleOf returns how a use looks beside its limit.
func styleOf(used, most int64) screen.Style {
	switch {
	case used > 0 && used >= most:
		return screen.Bad
	case share(used, most) >= 0.8:
		return screen.Warn
	}
	return screen.Plain
}
