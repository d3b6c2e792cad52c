package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// column is a unit of a benchmark and what it is called in a table.
type column struct{ unit, title string }

// writeRows writes a table of a benchmark's rows. Columns that no row has are
// left out; extra adds cells of its own.
func writeRows(b *strings.Builder, res *results, bench, first string, seen map[*row]bool, columns []column, extra ...func(*row) string) {
	rows := res.bench(bench)
	for _, r := range rows {
		seen[r] = true
	}
	writeTable(b, rows, first, func(r *row) string { return strings.Join(r.path[1:], ", ") }, columns, extra...)
}

// writeTable is writeRows for some rows, and names them.
func writeTable(b *strings.Builder, rows []*row, first string, name func(*row) string, columns []column, extra ...func(*row) string) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return c.unit != "" && !slices.ContainsFunc(rows, func(r *row) bool { return len(r.values[c.unit]) > 0 })
	})
	head := []string{first}
	for _, c := range columns {
		head = append(head, c.title)
	}
	t := newTable(head...)
	for _, r := range rows {
		cells := []string{name(r)}
		next := 0
		for _, c := range columns {
			cell := ""
			if c.unit == "" {
				cell = extra[next](r)
				next++
			} else if v, ok := r.median(c.unit); ok {
				cell = figure(v)
			}
			cells = append(cells, cell)
		}
		t.add(cells...)
	}
	t.write(b)
}

func writeSync(b *strings.Builder, res *results, seen map[*row]bool) {
	if len(res.bench("Sync"))+len(res.bench("SyncRate"))+len(res.bench("Traffic")) == 0 {
		return
	}
	b.WriteString("## Redis\n\nA real server on the loopback device, which shares the machine with the client.\n\n")
	if len(res.bench("Sync")) > 0 {
		b.WriteString("One unit booked on each of 500 keys in one pipeline, n keys to a script call (batch-n) or decided and booked by one call per key (take, as `remote.Limiter` does). " +
			"Plain is no limiter: a GET and a SET of a value as long, which say how fast this Redis was at the time. " +
			"\"Script\" is the time spent in scripts (`INFO commandstats`; of plain in its commands), \"process\" all processor time of redis-server. All keys have units in every bucket of their window.\n\n")
		writeRows(b, res, "Sync", "", seen, []column{
			{"redis-us/key", "script, µs per key"}, {"", "to take"}, {"cpu-us/key", "process, µs per key"},
			{"in-B/key", "bytes in per key"}, {"out-B/key", "bytes out per key"}, {"keys/s", "keys per second"},
		}, func(r *row) string {
			one, ok := res.median("Sync/"+r.path[1]+"/take", "redis-us/key")
			us, have := r.median("redis-us/key")
			if v, valid := ratio(us, one); ok && have && valid {
				return times(v)
			}
			return ""
		})
	}
	if len(res.bench("SyncRate")) > 0 {
		b.WriteString("A hybrid limiter that is asked for 10,000 keys once each and then flushes them, over and over. Windows hold one or two buckets then, and cost less than above:\n\n")
		writeRows(b, res, "SyncRate", "rule", seen, []column{
			{"keys/s", "keys per second"}, {"redis-us/key", "script, µs per key"}, {"cpu-us/key", "process, µs per key"},
			{"keys/script", "keys per script call"}, {"units/key", "units per key"},
		})
	}
	if len(res.bench("Traffic")) > 0 {
		b.WriteString("What a million checks of 10,000 keys cost Redis. What `hybrid` sends depends on time, not on checks: at 100,000 a second each key is asked about once " +
			"per sync interval, flat out many times. `remote` asks each time. Commands include those that scripts give.\n\n")
		writeRows(b, res, "Traffic", "limiter, rule, rate", seen, []column{
			{"scripts/Mchecks", "script calls"}, {"commands/Mchecks", "commands"}, {"in-MB/Mchecks", "MB in"},
			{"out-MB/Mchecks", "MB out"}, {"cpu-s/Mchecks", "processor, s"},
		})
	}
}

func writeMemory(b *strings.Builder, r recorded, seen map[*row]bool) {
	if len(r.memory.rows) == 0 && len(r.bench.bench("New")) == 0 {
		return
	}
	b.WriteString("## Memory\n\n")
	if len(r.memory.bench("Memory")) > 0 {
		b.WriteString("All keys are in memory, their names are counted, and the limiter has room for a sixteenth more. Each key was asked once or, where the limiter is called busy, once more some buckets later. A garbage collection of that heap, and of one without keys:\n\n")
		writeRows(b, r.memory, "Memory", "limiter, rule, keys", seen, []column{
			{"B/key", "B per key"}, {"in-use-B/key", "with free space in spans"}, {"gc-ms", "collection, ms"}, {"empty-gc-ms", "without keys"},
			{"gc-cpu-ms", "its processor time, ms"}, {"empty-gc-cpu-ms", "without keys"}, {"pause-us", "world stopped, µs"}, {"empty-pause-us", "without keys"},
		})
	}
	if len(r.bench.bench("New")) > 0 {
		b.WriteString("A limiter with default options, before its first key:\n\n")
		writeRows(b, r.bench, "New", "", seen, []column{
			{"ns/op", "ns to make"}, {"allocs/op", "allocations"}, {"B/op", "B allocated"}, {"heap-B", "B alive"},
		})
	}
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

func writeAccuracy(b *strings.Builder, res *results, picture func(), seen map[*row]bool) {
	b.WriteString("## Accuracy\n\nFour nodes share a limit of 1,000 per period and are offered ten times as much, in virtual time, 1 ms from Redis. Over: admitted above the limit in the mean window, " +
		"and in the worst; under: not admitted in the mean window although asked for; all in % of the limit. Repeats differ by a tenth of a point in the mean window and by a point in the worst. Calls: script calls per second, of all nodes together. " +
		"\"Without\" is the mutant `no-near-limit-trigger`, in which no check starts a report before its time. It pays for its few calls with the limit.\n\n")
	picture()
	list := points(res)
	var rules []string
	for _, p := range list {
		seen[p.row] = true
		if !slices.Contains(rules, p.rule) {
			rules = append(rules, p.rule)
		}
	}
	slices.Sort(rules)
	for _, rule := range rules {
		fmt.Fprintf(b, "### %s\n\n", rule)
		t := newTable("sync interval", "over", "worst", "under", "calls", "without: over", "worst", "under", "calls")
		var intervals []time.Duration
		for _, p := range list {
			if p.rule == rule && !slices.Contains(intervals, p.interval) {
				intervals = append(intervals, p.interval)
			}
		}
		for _, d := range intervals {
			cells := []string{d.String()}
			for _, code := range []string{withTrigger, withoutTrigger} {
				for _, unit := range []string{"overshoot-%", "worst-%", "undershoot-%", "scripts/s"} {
					cell := ""
					if v, ok := res.median("Accuracy/"+rule+"/"+code+"/"+d.String(), unit); ok {
						cell = figure(v)
					}
					cells = append(cells, cell)
				}
			}
			t.add(cells...)
		}
		t.write(b)
	}
}

// writeOthers lists what no other section has shown.
func writeOthers(b *strings.Builder, r recorded, seen map[*row]bool) {
	t := newTable("benchmark", "figures")
	for _, part := range parts {
		for _, row := range r.part(part).rows {
			if seen[row] || !sharesPage(part) {
				continue
			}
			var cells []string
			for _, unit := range row.units {
				cells = append(cells, figure(median(row.values[unit]))+" "+unit)
			}
			t.add(strings.Join(row.path, ", "), strings.Join(cells, "; "))
		}
	}
	if len(t.rows) > 0 {
		b.WriteString("## Others\n\n")
		t.write(b)
	}
}
