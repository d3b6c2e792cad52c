package main

import (
	"slices"
	"strings"
)

// What limiters cost at the load of a service has a page of its own, and is judged there.
const (
	costPage = "cost.md"
	plotCost = "cost.svg"
)

// noLimiter is the name of the baseline: no limiter at all.
const noLimiter = "nothing"

// perCheck are the units of processor time.
var perCheck = []string{"client-us/check", "redis-us/check"}

// cost is a row of that part, taken apart: Cost/<limiter>/<rate>/<keys>/<nodes>/<kind>.
type cost struct {
	*row
	limiter, load string
	kind          string
}

// costs returns the rows of a load, or of all if it is empty.
func (res *results) costs(load string) (list []cost) {
	for _, r := range res.bench("Cost") {
		if len(r.path) != 6 {
			continue
		}
		c := cost{r, r.path[1], strings.Join(r.path[2:], "/"), r.path[5]}
		if load == "" || load == c.load {
			list = append(list, c)
		}
	}
	return list
}

// costLoads returns all loads, in the order of the file.
func (res *results) costLoads() (loads []string) {
	for _, c := range res.costs("") {
		if !slices.Contains(loads, c.load) {
			loads = append(loads, c.load)
		}
	}
	return loads
}

// costName returns the name of a row.
func costName(limiter, load string) string { return "Cost/" + limiter + "/" + load }

// spent returns what a limiter takes of some units together, less what the load takes
// with none at all: by the medians, and by each pass.
func (res *results) spent(limiter, load string, units ...string) (sum reading, ok bool) {
	with, without := res.byName[costName(limiter, load)], res.byName[costName(noLimiter, load)]
	if with == nil {
		return sum, false
	}
	for _, unit := range units {
		list, base := with.values[unit], []float64(nil)
		if len(list) == 0 {
			return sum, false
		}
		if without != nil {
			base = without.values[unit]
		}
		sum.v += median(list)
		if len(base) > 0 {
			sum.v -= median(base)
		}
		if sum.passes == nil {
			sum.passes = make([]float64, len(list))
		}
		for i := range min(len(list), len(sum.passes)) {
			sum.passes[i] += list[i]
			if i < len(base) {
				sum.passes[i] -= base[i]
			}
		}
	}
	return sum, true
}

// over returns a / b.
func over(a reading, haveA bool, b reading, haveB bool) (r reading, ok bool) {
	if r.v, ok = ratio(a.v, b.v); !ok || !haveA || !haveB {
		return reading{}, false
	}
	for i := range min(len(a.passes), len(b.passes)) {
		if v, ok := ratio(a.passes[i], b.passes[i]); ok {
			r.passes = append(r.passes, v)
		}
	}
	return r, true
}

// overRate returns what hybrid takes in % of what redis_rate takes.
func overRate(load string, units ...string) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) {
		a, haveA := r.cost.spent("hybrid", load, units...)
		b, haveB := r.cost.spent("redis_rate", load, units...)
		q, ok := over(a, haveA, b, haveB)
		return q.times(100), ok
	}
}

func (r reading) times(n float64) reading {
	out := reading{v: n * r.v}
	for _, v := range r.passes {
		out.passes = append(out.passes, n*v)
	}
	return out
}

// flatOut compares what one of our limiters takes without a pause with the rival that has
// keys, whose nodes share nothing.
func flatOut(limiter string) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) {
		const load = "0/65536/1/flatout"
		a, haveA := r.cost.rate(limiter, load)
		b, haveB := r.cost.rate("memorystore", load)
		return over(b, haveB, a, haveA) // of the time that a check takes
	}
}

// rate returns how many checks a second there were.
func (res *results) rate(limiter, load string) (reading, bool) {
	r := res.byName[costName(limiter, load)]
	if r == nil || len(r.values["checks/s"]) == 0 {
		return reading{}, false
	}
	return reading{v: median(r.values["checks/s"]), passes: r.values["checks/s"]}, true
}

// keysPerCall returns how many keys travel in a script call.
func (res *results) keysPerCall(name string) (float64, bool) {
	keys, haveKeys := res.median(name, "keys/s")
	calls, haveCalls := res.median(name, "calls/s")
	if !haveKeys || !haveCalls {
		return 0, false
	}
	return ratio(keys, calls)
}

// failedExchanges adds up the most of any pass of each row.
func failedExchanges(r recorded) (reading, bool) {
	sum, found := 0.0, false
	for _, c := range r.cost.costs("") {
		if list := c.values["failed"]; len(list) > 0 {
			sum, found = sum+slices.Max(list), true
		}
	}
	return plain(sum, found)
}

// costTargets are what the project wants of this page's figures.
func costTargets() []target {
	most := func(bound float64, unit, wants string, m func(recorded) (reading, bool)) target {
		return target{wants, bound, false, unit, m}
	}
	const usual = "5000/2000/1/far"
	return []target{
		most(5, "%", "client and Redis, 5,000 checks/s, 2,000 keys: `hybrid` ÷ `redis_rate`", overRate(usual, perCheck...)),
		most(8, "%", "client and Redis, 1,000 checks/s, 200 keys: `hybrid` ÷ `redis_rate`", overRate("1000/200/1/far", perCheck...)),
		most(3, "%", "Redis alone, 5,000 checks/s, 2,000 keys: `hybrid` ÷ `redis_rate`", overRate(usual, perCheck[1])),
		most(1.5, "µs", "client and Redis, 50,000 checks/s, 20,000 keys: `hybrid`, per check", func(r recorded) (reading, bool) {
			return r.cost.spent("hybrid", "50000/20000/1/far", perCheck...)
		}),
		{"keys per script call, 5,000 checks/s, 2,000 keys: `hybrid`", 50, true, "keys", func(r recorded) (reading, bool) {
			return plain(r.cost.keysPerCall(costName("hybrid", usual)))
		}},
		most(15, "commands/s", "an idle node, those inside scripts too: `hybrid`", func(r recorded) (reading, bool) {
			return plain(r.cost.median(costName("hybrid", "0/20000/1/idle"), "commands/s"))
		}),
		most(1.4, "×", "65,536 keys without a pause, Redis beside: `hybrid` ÷ `memorystore`", flatOut("hybrid")),
		most(2.2, "×", "65,536 keys without a pause, Redis beside: `hybrid-window` ÷ `memorystore`", flatOut("hybrid-window")),
		most(0, "exchanges", "failed, the worst pass of each row together", failedExchanges),
	}
}

// writeCost writes that page.
func writeCost(r recorded) string {
	var b strings.Builder
	b.WriteString("# What a limiter costs a service\n\n" +
		"Written by `go run ./bench/report -parts cost`; do not edit. Medians of what the raw file next to this page holds. Redis shares the machine with the client.\n\n" +
		"Checks come at a steady pace, with other work between them; of several nodes each is asked for an equal part. Keys have a Zipf distribution with the exponent 1.1. " +
		"Processor time is that of the whole process and of the whole redis-server, less what the same load takes with no limiter at all, which `nothing` shows.\n\n")
	writeMachine(&b, partCost, r.cost.config)
	b.WriteString("## What is wanted\n\nMeasured is what the medians say; the next column is the median, and the range, of what each pass says by itself.\n\n")
	verdicts(&b, costTargets(), r)
	b.WriteString("![processor time per check, by limiter](" + plotCost + ")\n\n" +
		"## Loads\n\nA load is named as for `go run ./bench/cost -run`: checks/s, keys, nodes, and kind. Kinds: far from every limit; the busiest keys at their limits; scarce, limits of 10 a minute; spent, nine of ten checks refused; idle, nobody asks any more; flatout, without a pause. " +
		"Processor time is in µs per check, of idle nodes per second.\n\n")
	writeLoads(&b, r.cost)
	writeTakes(&b, r.cost)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// costColumns are units that are shown as they are.
var costColumns = []column{{"p50-us", "check p50, µs"}, {"p99-us", "p99"}, {"p99.9-us", "p99.9"}, {"refused-%", "refused, %"}, {"commands/s", "Redis' commands/s"}}

// writeLoads writes a row per load and limiter.
func writeLoads(b *strings.Builder, res *results) {
	head := []string{"load", "limiter", "client", "Redis", "both ÷ `redis_rate`"}
	for _, c := range costColumns {
		head = append(head, c.title)
	}
	t := newTable(append(head, "keys per call")...)
	for _, load := range res.costLoads() {
		for _, c := range res.costs(load) {
			of := "check"
			if c.kind == "idle" {
				of = "s"
			}
			cells := []string{load, "`" + c.limiter + "`"}
			for _, unit := range []string{"client-us/" + of, "redis-us/" + of} {
				if v, ok := res.spent(c.limiter, load, unit); c.limiter != noLimiter {
					cells = append(cells, cell(v.v, ok))
				} else { // what the load itself takes
					cells = append(cells, cell(c.median(unit)))
				}
			}
			both, haveBoth := res.spent(c.limiter, load, perCheck...)
			by, haveBy := res.spent("redis_rate", load, perCheck...)
			quotient := ""
			if v, ok := over(both, haveBoth, by, haveBy); ok && kindOf(c.limiter) != keyed {
				quotient = figure(100*v.v) + "%"
			}
			cells = append(cells, quotient)
			for _, col := range costColumns {
				cells = append(cells, cell(c.median(col.unit)))
			}
			t.add(append(cells, cell(res.keysPerCall(c.name)))...)
		}
	}
	t.write(b)
}

func cell(v float64, ok bool) string {
	if !ok {
		return ""
	}
	return figure(v)
}
