package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// column is a unit of a benchmark and what it is called in a table.
type column struct{ unit, title string }

// writeRows writes a table of a benchmark's rows.
func writeRows(b *strings.Builder, rows []*row, first string, columns []column) {
	head := []string{first}
	for _, c := range columns {
		head = append(head, c.title)
	}
	t := newTable(head...)
	for _, r := range rows {
		cells := []string{strings.Join(r.path[1:], ", ")}
		for _, c := range columns {
			cells = append(cells, cell(r.median(c.unit)))
		}
		t.add(cells...)
	}
	t.write(b)
}

func writeSync(b *strings.Builder, res *results) {
	if len(res.bench("Sync")) == 0 {
		return
	}
	b.WriteString("## Redis\n\nA real server on the loopback device, which shares the machine with the client. One unit booked on each of 500 keys in one pipeline, n keys to a script call (batch-n) or decided and booked by one call per key (take, as `remote.Limiter` does). " +
		"Plain is no limiter: a GET and a SET of a value as long, which say how fast this Redis was at the time. " +
		"\"Script\" is the time spent in scripts (`INFO commandstats`; of plain in its commands), \"process\" all processor time of redis-server. All keys have units in every bucket of their window.\n\n")
	writeRows(b, res.bench("Sync"), "", []column{
		{"redis-us/key", "script, µs per key"}, {"cpu-us/key", "process, µs per key"}, {"in-B/key", "bytes in per key"}, {"out-B/key", "bytes out per key"}, {"keys/s", "keys per second"},
	})
}

func writeMemory(b *strings.Builder, r recorded) {
	if len(r.memory.rows) == 0 {
		return
	}
	b.WriteString("## Memory\n\nAll keys are in memory, their names are counted, and the limiter has room for a sixteenth more. Each key was asked once or, where the limiter is called busy, once more some buckets later. A garbage collection of that heap, and of one without keys:\n\n")
	writeRows(b, r.memory.bench("Memory"), "limiter, rule, keys", []column{
		{"B/key", "B per key"}, {"gc-ms", "collection, ms"}, {"empty-gc-ms", "without keys"}, {"pause-us", "world stopped, µs"}, {"empty-pause-us", "without keys"},
	})
	b.WriteString("A limiter with default options, before its first key:\n\n")
	writeRows(b, r.bench.bench("New"), "", []column{{"ns/op", "ns to make"}, {"allocs/op", "allocations"}, {"heap-B", "B alive"}})
}

// point is what was measured of one sync interval.
type point struct {
	rule, code string // code: what was under test
	interval   time.Duration
	*row
}

// points returns the measurements of accuracy, Accuracy/<rule>/<code>/<interval>,
// by ascending interval.
func points(res *results) (list []point) {
	for _, r := range res.bench("Accuracy") {
		if len(r.path) != 4 {
			continue
		}
		if d, err := time.ParseDuration(r.path[3]); err == nil {
			list = append(list, point{r.path[1], r.path[2], d, r})
		}
	}
	slices.SortStableFunc(list, func(a, b point) int { return cmp.Compare(a.interval, b.interval) })
	return list
}

// The code under test: as it is, and with the mutant that has no trigger.
const (
	withTrigger    = "trigger"
	withoutTrigger = "no-trigger"
)

func writeAccuracy(b *strings.Builder, res *results) {
	if len(res.rows) == 0 {
		return
	}
	b.WriteString("## Accuracy\n\nFour nodes share a limit of 1,000 per period and are offered ten times as much, in virtual time, 1 ms from Redis. Over: admitted above the limit in the mean window, " +
		"and in the worst; under: not admitted in the mean window although asked for; all in % of the limit. Repeats differ by a tenth of a point in the mean window and by a point in the worst. Calls: script calls per second, of all nodes together. " +
		"\"No-trigger\" is the mutant `no-near-limit-trigger`, in which no check starts a report before its time. It pays for its few calls with the limit.\n\n" +
		"![overshoot by sync interval](" + plotAccuracy + ")\n\n")
	var rows []*row
	for _, p := range points(res) {
		rows = append(rows, p.row)
	}
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(strings.Compare(a.path[1], b.path[1]), strings.Compare(b.path[2], a.path[2]))
	})
	writeRows(b, rows, "rule, code, sync interval", []column{{"overshoot-%", "over"}, {"worst-%", "worst"}, {"undershoot-%", "under"}, {"scripts/s", "calls"}})
}
