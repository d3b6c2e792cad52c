package main

import (
	"fmt"
	"slices"
	"strings"
)

// The plots, next to the page.
const (
	plotChecks   = "checks.svg"
	plotAccuracy = "accuracy.svg"
)

// page writes the README of the results.
func page(r recorded, plots map[string][]byte) string {
	var b strings.Builder
	b.WriteString("# Measured\n\n" +
		"Written by `go run ./bench/report`; do not edit. Medians of what the raw files next to this page hold; `go run ./bench/report -from bench/results` " +
		"makes the page from them again. Compare figures of one table only: machines differ, and so do moments. What a limiter costs at the load of a service has [a page of its own](" + costPage + ")" + linkToSmall(r) + ".\n\n")
	writeMachines(&b, r)
	writeTargets(&b, r)
	picture := func(name, title string) {
		if plots[name] != nil {
			fmt.Fprintf(&b, "![%s](%s)\n\n", title, name)
		}
	}
	seen := map[*row]bool{}
	benches := checkBenches(r.bench)
	if len(benches) > 0 {
		b.WriteString("## Checks\n\nns per check. ± is half the distance between the quartiles. `floor` is what a limiter with its keys in a map cannot do without: read a clock, " +
			"find the key, update a number; `floor-array` has it in an array of a fixed size rather than a map. All of ours but `hybrid-synced`, `hybrid-syncing` and `hybrid-outage` have no Redis; `hybrid-synced` tells one all that it admits. `hybrid-admits` is `hybrid` asked for what it admits, beside what it refuses. The key that is asked is in the processor's cache, as it is when somebody has just read it; " +
			"what the limiter keeps of it need not be. Long keys have 41 bytes. Ratios are to the floor with the same clock, and to the fastest rival with keys in one process.\n\n")
		picture(plotChecks, "ns per check, by limiter")
		for _, bench := range benches {
			writeChecks(&b, r.bench, bench, seen)
		}
	}
	writeSync(&b, r.bench, seen)
	writeMemory(&b, r, seen)
	if len(r.accuracy.rows) > 0 {
		writeAccuracy(&b, r.accuracy, func() { picture(plotAccuracy, "overshoot by sync interval") }, seen)
	}
	writeOthers(&b, r, seen)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// linkToSmall is empty as long as that page is.
func linkToSmall(r recorded) string {
	if len(r.small.rows) == 0 {
		return ""
	}
	return ", and [how exact fleets are at small limits](" + smallPage + ") another"
}

// writeMachine says by what a page about one raw file was measured.
func writeMachine(b *strings.Builder, c map[string]string) {
	t := newTable("machine", "Go", "Redis", "by")
	t.add(c["machine"], c["go"], c["redis"], "`"+c["command"]+"`")
	t.write(b)
}

func writeMachines(b *strings.Builder, r recorded) {
	t := newTable("raw results", "machine", "Go", "Redis", "by")
	for _, part := range parts {
		c := r.part(part).config
		if sharesPage(part) && len(r.part(part).rows) > 0 {
			t.add("[`raw-"+part+".txt`](raw-"+part+".txt)", c["machine"], c["go"], c["redis"], "`"+c["command"]+"`")
		}
	}
	t.write(b)
}

func writeTargets(b *strings.Builder, r recorded) {
	b.WriteString("## Targets\n\nWhere several figures count, this is the worst of them. Measured is the ratio of the medians; the next column is the median, and the range, of the ratios of each pass, whose two rows are seconds to minutes apart.\n\n")
	verdicts(b, targets(), r)
}

// verdicts writes a table of targets and what has become of them.
func verdicts(b *strings.Builder, list []target, r recorded) {
	t := newTable("target", "wanted", "measured", "pass by pass", "")
	for _, want := range list {
		measured, passes, word := want.verdict(r)
		t.add(want.wants, want.wanted(), measured, passes, word)
	}
	t.write(b)
}

// checkBenches returns the benchmarks of checks, Allow first.
func checkBenches(res *results) (names []string) {
	for _, r := range res.rows {
		if name := r.path[0]; !slices.Contains(names, name) && len(res.checks(name)) > 0 {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, c string) int {
		switch {
		case a == c:
			return 0
		case a == "Allow":
			return -1
		case c == "Allow":
			return 1
		}
		return 0
	})
	return names
}

// writeChecks writes a table for each of the loads that people compare: many keys alike, and one key. The raw
// results have the others. A row is a limiter, the fastest first.
func writeChecks(b *strings.Builder, res *results, bench string, seen map[*row]bool) {
	list := res.checks(bench)
	var loads, usual []string
	for _, c := range list {
		seen[c.row] = true
		if !slices.Contains(loads, c.load) {
			loads = append(loads, c.load)
			if c.isUniform() || c.isHot() {
				usual = append(usual, c.load)
			}
		}
	}
	if len(list) == len(loads)*len(modes) && len(limitersOf(list, loads[0])) == 1 {
		writeAlone(b, bench, list, loads) // nobody to compare with
		return
	}
	if len(usual) > 0 {
		loads = usual
	}
	for _, load := range loads {
		title := bench
		if load != "" {
			title += ": " + strings.ReplaceAll(load, "/", ", ")
		}
		fmt.Fprintf(b, "### %s\n\n", title)
		t := newTable("limiter", "serial", "±", "to rival", "to floor", "parallel", "±", "to rival", "to floor", "allocs")
		for _, limiter := range limitersOf(list, load) {
			writeLimiter(t, list, limiter, load)
		}
		t.write(b)
	}
}

// writeAlone writes one table for a benchmark of one limiter per load.
func writeAlone(b *strings.Builder, bench string, list []check, loads []string) {
	fmt.Fprintf(b, "### %s\n\n", bench)
	t := newTable("", "serial", "±", "parallel", "±", "allocs")
	for _, load := range loads {
		limiter := limitersOf(list, load)[0]
		cells, allocs := []string{strings.ReplaceAll(limiter+"/"+load, "/", ", ")}, ""
		for _, mode := range modes {
			c, ok := same(list, limiter, check{load: load, mode: mode})
			if !ok {
				cells = append(cells, "", "")
				continue
			}
			cells = append(cells, figure(c.ns()), percent(spread(c.values["ns/op"])))
			if a, ok := c.median("allocs/op"); ok && allocs == "" {
				allocs = figure(a)
			}
		}
		t.add(append(cells, allocs)...)
	}
	t.write(b)
}

func limitersOf(list []check, load string) (names []string) {
	speed := map[string]float64{}
	for _, c := range list {
		if _, known := speed[c.limiter]; c.load == load && (!known || c.mode == "serial") {
			speed[c.limiter] = c.ns()
			if !known {
				names = append(names, c.limiter)
			}
		}
	}
	slices.SortStableFunc(names, func(a, c string) int {
		switch {
		case speed[a] < speed[c]:
			return -1
		case speed[a] > speed[c]:
			return 1
		}
		return strings.Compare(a, c)
	})
	return names
}

func writeLimiter(t *table, list []check, limiter, load string) {
	cells := []string{"`" + limiter + "`"}
	allocs := ""
	for _, mode := range modes {
		c, ok := same(list, limiter, check{load: load, mode: mode})
		if !ok {
			cells = append(cells, "", "", "", "")
			continue
		}
		cells = append(cells, figure(c.ns()), percent(spread(c.values["ns/op"])))
		for _, k := range []kind{keyed, floor} {
			cell := ""
			if best, ok := fastest(list, k, c); ok {
				if v, ok := ratio(c.ns(), best.ns()); ok {
					cell = times(v)
				}
			}
			cells = append(cells, cell)
		}
		if a, ok := c.median("allocs/op"); ok && allocs == "" {
			allocs = figure(a)
		}
	}
	t.add(append(cells, allocs)...)
}
