package doctor

import (
	"cmp"
	"slices"
)

// judge makes every check of one server.
func (r *Report) judge(f *facts, o Options) {
	unknown := map[string][]string{} // ids by reason
	for _, c := range checks {
		a := c.look(f, o)
		switch {
		case a.unknown != "":
			unknown[a.unknown] = append(unknown[a.unknown], c.id)
		case a.what != "":
			severity := cmp.Or(a.severity, c.severity)
			r.Findings = append(r.Findings, Finding{c.id, severity, f.name, a.what, cmp.Or(a.why, c.why), append([]string{}, a.fix...)})
		}
	}
	var reasons []Unknown
	for reason, ids := range unknown {
		reasons = append(reasons, Unknown{f.name, ids, reason})
	}
	slices.SortFunc(reasons, func(a, b Unknown) int { return cmp.Compare(a.Reason, b.Reason) })
	r.Unknown = append(r.Unknown, reasons...)
}

var rank = map[Severity]int{Error: 0, Warning: 1, Note: 2}

// order puts the worst first.
func (r *Report) order() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
}

// answer is what a check has found: nothing, something, or that it cannot tell.
type answer struct {
	what     string // empty: nothing
	fix      []string
	severity Severity // instead of that of the check
	why      string   // the same
	unknown  string   // why it cannot tell
}

// check is one thing that may be wrong.
type check struct {
	id       string
	severity Severity
	why      string
	look     func(*facts, Options) answer
}

// fine is the answer if nothing is wrong.
var fine answer

func wrong(what string, fix ...string) answer { return answer{what: what, fix: fix} }

func cannotTell(why string) answer { return answer{unknown: why} }

func (a answer) as(s Severity) answer {
	a.severity = s
	return a
}

func (a answer) because(why string) answer {
	a.why = why
	return a
}

// IDs returns the ids of all checks.
func IDs() []string {
	var ids []string
	for _, c := range checks {
		ids = append(ids, c.id)
	}
	return ids
}
