package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/internal/inspect"
	"github.com/hybridlimit/hybridlimit/limit"
)

// topCmd lists the keys that are nearest to their limits.
type topCmd struct {
	Number int      `short:"n" default:"20" help:"How many keys to list, 1 to 1000."`
	Near   float64  `default:"80" placeholder:"PERCENT" help:"List keys that have used so much of their limits."`
	Scan   int64    `default:"20000" placeholder:"KEYS" help:"Look at about so many keys of Redis at most."`
	Rule   []string `group:"rule" sep:"none" placeholder:"RULE" help:"NAME=ALGORITHM,LIMIT/PER[,FIELD=VALUE...], or NAME=LIMITS as in 10/s, 500/m; may be repeated."`
	rulesFlags
	redisFlags
}

const (
	mostListed  = 1000
	mostScanned = 100_000_000
)

// limits knows the rules of counters.
type limits struct {
	rulesFlags
	set    *rules.Set
	inline []*limit.Rule
}

// of returns the rule of a counter; nil if it is not known.
func (l *limits) of(n inspect.Name) *limit.Rule {
	for _, rule := range l.inline {
		if rule := counted(n, rule); rule != nil {
			return rule
		}
	}
	name, suffix, _ := strings.Cut(n.Rule, "@")
	key := n.Key
	if n.Hashed {
		key = "" // nobody knows it: no override is about it
	}
	for {
		if rule := counted(n, l.rulesFlags.of(l.set, name, key)); rule != nil {
			return rule
		}
		if l.set.HasPlan(suffix) {
			if rule := counted(n, l.set.ForPlan(name, suffix, key)); rule != nil {
				return rule
			}
		}
		// One of several limits has its period behind the name of the rule.
		end := strings.LastIndexByte(name, '/')
		if end < 0 {
			return nil
		}
		name = name[:end]
	}
}

// counted returns the rule, or the one of its parts, that has the counter; nil if none has.
func counted(n inspect.Name, rule *limit.Rule) *limit.Rule {
	for _, part := range rule.Parts() {
		if n.Of(part) {
			return part
		}
	}
	if n.Of(rule) {
		return rule
	}
	return nil
}

func (c *topCmd) limits() (*limits, error) {
	set, err := c.load()
	if err != nil {
		return nil, err
	}
	l := &limits{rulesFlags: c.rulesFlags, set: set}
	for _, text := range c.Rule {
		if !strings.Contains(text, "=") {
			return nil, usage(fmt.Errorf("--rule %s: must be NAME=ALGORITHM,LIMIT/PER; all rules of --rules are looked at", text))
		}
		rule, err := inline(text)
		if err != nil {
			return nil, usage(err)
		}
		l.inline = append(l.inline, rule)
	}
	if set == nil && len(l.inline) == 0 {
		return nil, usage(errors.New("what the limits are is not kept in Redis: say --rules FILE or --rule NAME=ALGORITHM,LIMIT/PER"))
	}
	return l, nil
}

func (c *topCmd) check() error {
	var errs []error
	if c.Number < 1 || c.Number > mostListed {
		errs = append(errs, fmt.Errorf("-n is %d, must be 1 to %d", c.Number, mostListed))
	}
	if !(c.Near >= 0 && c.Near <= 100) { // or not a number
		errs = append(errs, fmt.Errorf("--near is %v, must be 0 to 100", c.Near))
	}
	if c.Scan < 1 || c.Scan > mostScanned {
		errs = append(errs, fmt.Errorf("--scan is %d, must be 1 to %d", c.Scan, mostScanned))
	}
	return usage(errors.Join(errs...))
}

// found is what a scan has found out.
type topFound struct {
	inspect.Scanned
	list        []look // the nearest, in order
	near, over  int64  // how many there are, listed or not
	unknown     int64  // counters of rules that are not known
	unusable    int64
	unknownName map[string]bool // some of those rules
}

// Run scans and lists.
func (c *topCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	known, err := c.limits()
	if err != nil {
		return err
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.Close()
	f := &topFound{unknownName: map[string]bool{}}
	f.Scanned, err = s.survey.Scan(p.ctx, c.Scan, func(names []inspect.Name) error {
		return f.add(p, s, c, known, names)
	})
	if err != nil {
		return s.failed(err)
	}
	p.warnOfLayout(s, 0) // it has a bound of its own for what it scans
	return p.showTop(f)
}

// add looks at counters.
func (f *topFound) add(p *program, s *store, c *topCmd, known *limits, names []inspect.Name) error {
	var ask []inspect.Look
	for _, n := range names {
		if rule := known.of(n); rule != nil {
			ask = append(ask, inspect.Look{Name: n, Rule: rule})
			continue
		}
		f.unknown++
		if len(f.unknownName) < 3 {
			f.unknownName[screen.Clean(n.Rule)] = true
		}
	}
	for i, seen := range s.survey.Peek(p.ctx, ask) {
		var key *limit.KeyError
		switch {
		case errors.As(seen.Err, &key):
			f.unusable++
			continue
		case seen.Err != nil:
			return seen.Err
		}
		most := seen.Result.Limit
		if seen.Used == 0 || share(seen.Used, most)*100 < c.Near {
			continue
		}
		f.near++
		if seen.Used > most {
			f.over++
		}
		f.insert(look{keyOf(ask[i].Name), ask[i].Rule, seen}, c.Number)
	}
	return nil
}

// insert keeps the list in order, and short.
func (f *topFound) insert(l look, most int) {
	at, _ := slices.BinarySearchFunc(f.list, l, nearer)
	if at >= most {
		return
	}
	f.list = slices.Insert(f.list, at, l)
	f.list = f.list[:min(len(f.list), most)]
}

// nearer orders by the share of the limit that is used, and then so that the order is the
// same each time.
func nearer(a, b look) int {
	return cmp.Or(
		cmp.Compare(share(b.seen.Used, b.seen.Result.Limit), share(a.seen.Used, a.seen.Result.Limit)),
		cmp.Compare(b.seen.Used, a.seen.Used), cmp.Compare(a.key, b.key), cmp.Compare(a.rule.Name(), b.rule.Name()))
}

// share returns how much of a limit is used; anything of a limit of 0 is more than all.
func share(used, most int64) float64 {
	if most == 0 {
		if used == 0 {
			return 0
		}
		return math.MaxFloat64
	}
	return float64(used) / float64(most)
}

// keyOf returns the key of a counter as it is shown.
func keyOf(n inspect.Name) string {
	if n.Hashed {
		return "sha256:" + n.Key
	}
	return n.Key
}

// topJSON is the list for programs.
type topJSON struct {
	Keys     []keyJSON `json:"keys"`
	Near     int64     `json:"near"`
	Over     int64     `json:"over"`
	Scanned  int64     `json:"scanned"`
	Total    int64     `json:"total"`
	Complete bool      `json:"complete"`
	Counters int64     `json:"counters"`
	Unknown  int64     `json:"of_unknown_rules"`
	Unusable int64     `json:"unusable"`
}

func (p *program) showTop(f *topFound) error {
	if p.JSON {
		out := topJSON{[]keyJSON{}, f.near, f.over, f.Keys, f.Total, f.Complete, f.Counters, f.unknown, f.unusable}
		for _, l := range f.list {
			out.Keys = append(out.Keys, l.json())
		}
		return p.Object(out)
	}
	if len(f.list) > 0 {
		t := &screen.Table{Columns: keyColumns}
		for _, l := range f.list {
			t.Rows = append(t.Rows, l.row())
		}
		if err := p.Table(t); err != nil {
			return err
		}
	}
	for _, text := range f.summary() {
		if err := p.Line(screen.Faint, 2, "%s", text); err != nil {
			return err
		}
	}
	return nil
}

// summary says what was looked at, and what was not.
func (f *topFound) summary() (lines []string) {
	lines = append(lines, fmt.Sprintf("%s near the limit, %s of them over. Looked at %s of Redis: %s.",
		screen.Many(f.near, "key", "keys"), screen.Count(f.over), lookedAt(f.Scanned), screen.Many(f.Counters, "counter", "counters")))
	if f.unknown > 0 {
		names := strings.Join(sorted(f.unknownName), ", ")
		lines = append(lines, fmt.Sprintf("Of rules that were not given, such as %s: %s.", names, screen.Many(f.unknown, "counter", "counters")))
	}
	if f.unusable > 0 {
		lines = append(lines, fmt.Sprintf("Cannot be used, see hybridlimit quarantined: %s.", screen.Many(f.unusable, "counter", "counters")))
	}
	return lines
}

// lookedAt says of how many keys a scan knows.
func lookedAt(sc inspect.Scanned) string {
	if sc.Complete {
		return "all of " + screen.Many(sc.Total, "key", "keys")
	}
	return fmt.Sprintf("about %s of %s", screen.Count(sc.Keys), screen.Many(sc.Total, "key", "keys"))
}
