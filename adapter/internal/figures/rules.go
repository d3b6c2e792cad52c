package figures

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// Other is the label of all rules after the first 1,000 names, and of checks without a rule
// that can be used.
const Other = "other"

// label returns the label for the name of a rule. Names may be any bytes, and labels must be
// UTF-8: other bytes are written as \xNN. Names have a bound, and so have labels.
func label(name string) string {
	if name == "" {
		return Other
	}
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[0])
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

// rules calls f for each label with all that is counted under it: two names may have one
// label, such as a rule that is really called "other".
func rules(s *Snapshot, f func(label string, r inside.RuleFigures)) {
	at, all := map[string]int{}, make([]inside.RuleFigures, 0, len(s.Rules))
	for _, r := range s.Rules {
		r.Name = label(r.Name)
		i, known := at[r.Name]
		if !known {
			at[r.Name] = len(all)
			all = append(all, r)
			continue
		}
		all[i].Allowed, all[i].Denied = sum(all[i].Allowed, r.Allowed), sum(all[i].Denied, r.Denied)
		all[i].WouldRefuse += r.WouldRefuse
		all[i].Invalid += r.Invalid
		all[i].Exempt += r.Exempt
	}
	for _, r := range all {
		f(r.Name, r)
	}
}

func sum(a, b inside.Outcomes) inside.Outcomes {
	return inside.Outcomes{Unsynced: a.Unsynced + b.Unsynced, Synced: a.Synced + b.Synced, Degraded: a.Degraded + b.Degraded, Local: a.Local + b.Local, Notice: a.Notice + b.Notice, Remote: a.Remote + b.Remote}
}

func decisions(s *Snapshot, add Add) {
	// Always in the same order: an SDK that keeps so many points keeps the first ones.
	rules(s, func(rule string, r inside.RuleFigures) {
		for i, o := range []inside.Outcomes{r.Allowed, r.Denied} {
			outcome := []string{"allowed", "denied"}[i]
			add(float64(o.Synced), rule, outcome, "synced")
			add(float64(o.Unsynced), rule, outcome, "unsynced")
			add(float64(o.Degraded), rule, outcome, "degraded")
			add(float64(o.Local), rule, outcome, "local")
			add(float64(o.Remote), rule, outcome, "remote")
		}
		add(float64(r.Denied.Notice), rule, "denied", "notice") // it only refuses
	})
}

func dryRuns(s *Snapshot, add Add) {
	rules(s, func(rule string, r inside.RuleFigures) { add(float64(r.WouldRefuse), rule) })
}

func invalid(s *Snapshot, add Add) {
	rules(s, func(rule string, r inside.RuleFigures) { add(float64(r.Invalid), rule) })
}

func exempt(s *Snapshot, add Add) {
	rules(s, func(rule string, r inside.RuleFigures) { add(float64(r.Exempt), rule) })
}
