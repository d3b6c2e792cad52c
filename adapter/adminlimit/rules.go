package adminlimit

import (
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// rulesView is what is shown of rules.
type rulesView struct {
	Rules []ruleRow `json:"rules"`
	File  *fileView `json:"file,omitempty"` // nil: there is none
}

// ruleRow is the rules of one name and what was decided by them.
type ruleRow struct {
	Name        string `json:"name"`
	Text        string `json:"rule,omitempty"`  // the latest; empty if none was used lately
	Exact       bool   `json:"exact,omitempty"` // Redis decides, see [hybrid.Limiter.TakeExact]
	Admitted    uint64 `json:"admitted"`
	Refused     uint64 `json:"refused"`
	WouldRefuse uint64 `json:"would_refuse"` // by dry runs
	Overshoot   int64  `json:"overshoot_units"`
}

// fileView is a rules file.
type fileView struct {
	Path    string     `json:"path"`
	Since   time.Time  `json:"since"`
	Problem string     `json:"problem,omitempty"`  // why the file as it is now is not in force
	InForce []fileLine `json:"in_force,omitempty"` // not with HideKeys
	OnDisk  []fileLine `json:"on_disk,omitempty"`  // only if it is not in force
}

type fileLine struct {
	Number int    `json:"line"`
	Text   string `json:"text"`
	Bad    bool   `json:"bad,omitempty"` // the problem is here
}

// rules returns them.
func (p *Page) rules() rulesView { return p.rows.get(p.readRules) }

func (p *Page) readRules() rulesView {
	v := rulesView{Rules: p.ruleRows()}
	f := p.o.Rules
	if f == nil {
		return v
	}
	text, since := f.InForce()
	disk, problem, line := f.OnDisk()
	v.File = &fileView{Path: f.Path(), Since: since.UTC(), Problem: problem}
	if p.o.HideKeys { // the file has keys, and so may what is wrong with it
		if problem != "" {
			v.File.Problem = fmt.Sprintf("the first mistake is in line %d", line)
		}
		return v
	}
	v.File.InForce = linesOf(text, 0)
	if problem != "" || disk != text {
		v.File.OnDisk = linesOf(disk, line)
	}
	return v
}

func (p *Page) ruleRows() []ruleRow {
	texts, exact := map[string]string{}, map[string]bool{}
	for _, r := range inside.Of(p.lim).Rules() {
		texts[r.Name()], exact[r.Name()] = r.String(), r.IsExact()
	}
	p.asInFile(texts, exact)
	rows := []ruleRow{}
	for _, r := range inside.Of(p.lim).QuickFigures().Rules {
		rows = append(rows, ruleRow{r.Name, texts[r.Name], exact[r.Name], r.Allowed.Total(), r.Denied.Total(), r.WouldRefuse, r.Overshoot})
	}
	return rows
}

// asInFile notes what rules are as the file has them: the limiter may remember one from before a reload
// or of a key with an exception, and of several limits it knows each by itself.
func (p *Page) asInFile(texts map[string]string, exact map[string]bool) {
	if p.o.Rules == nil {
		return
	}
	for _, name := range p.o.Rules.Names() {
		rule, _ := p.o.Rules.Lookup(name, "", "")
		exact[name] = rule.IsExact()
		if rule.Valid() {
			texts[name] = rule.String()
		}
		for _, part := range rule.Parts() {
			exact[part.Name()], texts[part.Name()] = rule.IsExact(), part.String()
		}
	}
}

// mostLines is how much of a file is shown.
const mostLines = 2000

// linesOf returns the lines of a text, and marks one. Of a long text it returns those around it.
func linesOf(text string, bad int) []fileLine {
	list, n := []fileLine{}, 0
	from := max(bad-mostLines/2, 1)
	for line := range strings.Lines(text) {
		if n++; n < from {
			continue
		}
		if len(list) == mostLines {
			return append(list, fileLine{n, "… the rest is not shown", false})
		}
		list = append(list, fileLine{n, strings.TrimRight(line, "\r\n"), n == bad})
	}
	return list
}
