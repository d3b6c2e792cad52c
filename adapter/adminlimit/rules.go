package adminlimit

import (
	"bufio"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// rulesView is what is shown of rules.
type rulesView struct {
	Rules []ruleRow `json:"rules"`
	File  *fileView `json:"file,omitempty"` // nil: there is none
}

// ruleRow is the rules of one name and what was decided by them.
type ruleRow struct {
	Name        string `json:"name"`
	Text        string `json:"rule,omitempty"` // the latest; empty if none was used lately
	Admitted    uint64 `json:"admitted"`
	Refused     uint64 `json:"refused"`
	WouldRefuse uint64 `json:"would_refuse"` // by dry runs
	Overshoot   int64  `json:"overshoot_units"`
}

// fileView is a rules file.
type fileView struct {
	Path    string     `json:"path"`
	Since   time.Time  `json:"since"`
	Problem string     `json:"problem,omitempty"` // why the file as it is now is not in force
	InForce []fileLine `json:"in_force"`
	OnDisk  []fileLine `json:"on_disk,omitempty"` // only if it is not in force
}

type fileLine struct {
	Number int    `json:"line"`
	Text   string `json:"text"`
	Bad    bool   `json:"bad,omitempty"` // the problem is here
}

// rules returns them.
func (p *Page) rules() rulesView {
	v := rulesView{Rules: rowsOf(p.lim)}
	if f := p.o.Rules; f != nil {
		text, since := f.InForce()
		v.File = &fileView{Path: f.Path(), Since: since.UTC(), InForce: linesOf(text, 0)}
		disk, problem, line := f.OnDisk()
		if v.File.Problem = problem; problem != "" || disk != text {
			v.File.OnDisk = linesOf(disk, line)
		}
	}
	return v
}

func rowsOf(lim *hybrid.Limiter) []ruleRow {
	texts := map[string]string{}
	for _, r := range lim.Rules() {
		texts[r.Name()] = r.String()
	}
	rows := []ruleRow{}
	for _, r := range lim.QuickStats().Rules {
		rows = append(rows, ruleRow{r.Name, texts[r.Name], r.Allowed.Total(), r.Denied.Total(), r.WouldRefuse, r.Overshoot})
	}
	return rows
}

// mostLines is how much of a file is shown.
const mostLines = 2000

// linesOf returns the lines of a text, and marks one.
func linesOf(text string, bad int) (list []fileLine) {
	s := bufio.NewScanner(strings.NewReader(text))
	s.Buffer(nil, len(text)+1)
	for s.Scan() && len(list) < mostLines {
		list = append(list, fileLine{len(list) + 1, s.Text(), len(list)+1 == bad})
	}
	return list
}
