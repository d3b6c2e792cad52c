package main

import (
	"cmp"
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
func page(r recorded) string {
	var b strings.Builder
	b.WriteString("# Measured\n\n" +
		"Written by `go run ./bench/report`; do not edit. Medians of what the raw files next to this page hold; `go run ./bench/report -from bench/results` " +
		"makes all pages from them again. Compare figures of one table only: machines differ, and so do moments. [Cost](" + costPage + ") at the load of a service and [accuracy at small limits](" + smallPage + ") have pages of their own.\n\n")
	for _, part := range []string{partBench, partMemory, partAccuracy} {
		if len(r.part(part).rows) > 0 {
			writeMachine(&b, part, r.part(part).config)
		}
	}
	b.WriteString("## Targets\n\nWhere several figures count, this is the worst of them. Measured is the ratio of the medians; the next column is the median, and the range, of the ratios of each pass, whose two rows are seconds to minutes apart.\n\n")
	verdicts(&b, targets(), r)
	writeChecks(&b, r.bench)
	writeSync(&b, r.bench)
	writeMemory(&b, r)
	writeAccuracy(&b, r.accuracy)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// writeMachine says by what a raw file was measured.
func writeMachine(b *strings.Builder, part string, c map[string]string) {
	fmt.Fprintf(b, "[`raw-%s.txt`](raw-%[1]s.txt): %s, Go %s, Redis %s, `%s`\n\n", part, c["machine"], c["go"], c["redis"], c["command"])
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

// checkColumns are the benchmarks of checks that the page shows.
var checkColumns = []struct{ bench, load, mode, title string }{
	{"Allow", "65536/uniform", "serial", "65,536 keys"}, {"Allow", "65536/uniform", "parallel", "parallel"},
	{"Allow", "1/uniform", "serial", "one key"}, {"Allow", "1/uniform", "parallel", "parallel"},
	{"Refused", "65536/uniform", "serial", "refused, 65,536 keys"}, {"Refused", "1/uniform", "serial", "one key"},
	{"Peek", "65536/uniform", "serial", "Peek, 65,536 keys"}, {"NewKey", "", "serial", "a new key"},
}

// writeChecks writes a row for each limiter, the fastest first. The raw results have other loads.
func writeChecks(b *strings.Builder, res *results) {
	if len(res.checks("Allow")) == 0 {
		return
	}
	b.WriteString("## Checks\n\nns per check. `floor` is what a limiter with its keys in a map cannot do without: read a clock, " +
		"find the key, update a number; `floor-array` has it in an array of a fixed size rather than a map. All of ours but `hybrid-synced`, `hybrid-syncing` and `hybrid-outage` have no Redis; `hybrid-synced` tells one all that it admits. `hybrid-admits` is `hybrid` asked for what it admits, beside what it refuses. The key that is asked is in the processor's cache, as it is when somebody has just read it; " +
		"what the limiter keeps of it need not be.\n\n" +
		"![ns per check, by limiter](" + plotChecks + ")\n\n")
	figures, head := map[string][]string{}, []string{"limiter"}
	first := map[string]float64{}
	var names []string
	for i, col := range checkColumns {
		head = append(head, col.title)
		for _, c := range res.checks(col.bench) {
			if c.load != col.load || c.mode != col.mode {
				continue
			}
			if figures[c.limiter] == nil {
				figures[c.limiter], first[c.limiter] = make([]string, len(checkColumns)), c.ns()+1e9*float64(i)
				names = append(names, c.limiter)
			}
			figures[c.limiter][i] = figure(c.ns())
		}
	}
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(first[x], first[y]) })
	t := newTable(head...)
	for _, name := range names {
		t.add(append([]string{"`" + name + "`"}, figures[name]...)...)
	}
	t.write(b)
}

// limitersOf returns the limiters of a load, the fastest first.
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
		return cmp.Or(cmp.Compare(speed[a], speed[c]), strings.Compare(a, c))
	})
	return names
}
