package main

import (
	"strings"
)

// How exact fleets are at small limits has a page of its own, and is judged there.
const (
	smallPage = "small.md"
	plotSmall = "small.svg"
)

// small is a row of that part, taken apart: Small/<limiter>/<pattern>/<rule>/<limit>/<nodes>.
type small struct {
	*row
	limiter, pattern, rule, limit, nodes string
}

// smalls returns the rows of a pattern and a rule, or of all if they are empty.
func (res *results) smalls(pattern, rule string) (list []small) {
	for _, r := range res.bench("Small") {
		if len(r.path) != 6 {
			continue
		}
		s := small{r, r.path[1], r.path[2], r.path[3], r.path[4], r.path[5]}
		if (pattern == "" || pattern == s.pattern) && (rule == "" || rule == s.rule) {
			list = append(list, s)
		}
	}
	return list
}

// ofHybrid returns a figure of our fleets, by the name of the row without the limiter.
func ofHybrid(load, unit string) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) { return r.small.reading("Small/hybrid/"+load, unit) }
}

// reading returns the median of a figure, and what each pass says.
func (res *results) reading(name, unit string) (reading, bool) {
	v, ok := res.median(name, unit)
	if !ok {
		return reading{}, false
	}
	return reading{v, res.byName[name].values[unit]}, true
}

// worstSmall returns the highest figure of our fleets of ten nodes under a pattern.
func worstSmall(pattern, unit string) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) {
		var w worst
		for _, s := range r.small.smalls(pattern, "") {
			if s.limiter == "hybrid" && s.nodes == "10" {
				w.high(r.small.reading(s.name, unit))
			}
		}
		return w.reading, w.found
	}
}

// missingUnits returns what our fleets have refused of what one process admits, in % over all rows.
func missingUnits(r recorded) (reading, bool) {
	missing, of := 0.0, 0.0
	for _, s := range r.small.smalls("", "") {
		one, haveOne := r.small.median(strings.Replace(s.name, "/hybrid/", "/one/", 1), "units")
		if v, ok := s.median("missing"); ok && haveOne && s.limiter == "hybrid" {
			missing, of = missing+v, of+one
		}
	}
	v, ok := ratio(100*missing, of)
	return plain(v, ok)
}

// smallColumns are the figures of a limiter.
var smallColumns = []column{
	{"to-one", "admitted ÷ one process"}, {"fullest", "fullest window, limits: mean"}, {"fullest-worst", "worst"}, {"fullest-to-one", "mean ÷ one process"},
	{"missing-%", "refused wrongly, %"}, {"calls/s", "Redis' calls/s"}, {"heard-p50-ms", "until all refuse, ms: p50"}, {"heard-p99-ms", "p99"},
}

// writeSmall writes that page.
func writeSmall(r recorded) string {
	var b strings.Builder
	b.WriteString("# How exact fleets are at small limits\n\n" +
		"Written by `go run ./bench/report -parts small`; do not edit. Figures are those of the raw file next to this page.\n\n" +
		"All limits are for 30 s. Each key is asked for about twelve times as often as its limit allows, where the limit is 60 five times. One process that gets all checks admits what is right (`one` in the raw file, which also says how late the load was). " +
		"The others get the same checks at the same times: `hybrid`; `alone`, nodes that count for themselves, as `httprate` does; `remote` and `redis_rate`, which ask Redis for each check. Those two are measured on ten nodes: it makes no difference which node asks. " +
		"The fullest window of a key is the most that was admitted within any 30 s, by an exact record. Refused wrongly is what one process admits of a key and the fleet does not. " +
		"\"Until all refuse\" is the time from the unit that uses up a key until the last node refuses it. It is measured of some further keys, and for 2 s at the most: after that a node counts as one that never hears of it.\n\n")
	writeMachine(&b, partSmall, r.small.config)
	b.WriteString("## What is wanted\n\n")
	verdicts(&b, smallTargets(), r)
	b.WriteString("![units admitted by one process' units, by fleet](" + plotSmall + ")\n\n" +
		"## Rows\n\nA row is named as for `go run ./bench/small -run`: limiter, pattern, rule, limit and nodes. Random: each check comes to a node at random; burst: ten checks of a new key within so long. " +
		"Rows of the pattern sticky, in which each key has a node of its own, are in the raw file alone.\n\n")
	var rows []*row
	for _, s := range r.small.smalls("", "") {
		if s.limiter != "one" && s.pattern != "sticky" { // the others are compared with one
			rows = append(rows, &row{path: []string{"", strings.Join(s.path[1:], "/")}, values: s.values})
		}
	}
	writeRows(&b, rows, "row", smallColumns)
	return strings.TrimRight(b.String(), "\n") + "\n"
}
