package main

import (
	"slices"
	"strconv"
	"strings"
)

// target is something that the project wants to be true of the figures.
type target struct {
	wants   string
	bound   float64
	atLeast bool   // the figure must not be below the bound; else not above
	unit    string // "×" for ratios
	measure func(recorded) (reading, bool)
}

// reading is a figure, and, of a ratio of checks, what each pass by itself says of it: that
// tells how far the other figure may be due to what disturbed one of the two.
type reading struct {
	v      float64
	passes []float64
}

func plain(v float64, ok bool) (reading, bool) { return reading{v: v}, ok }

// compare returns how many times as long as b a takes.
func compare(a, b check) (r reading, ok bool) {
	as, bs := a.values["ns/op"], b.values["ns/op"]
	for i := range min(len(as), len(bs)) {
		if v, ok := ratio(as[i], bs[i]); ok && len(as) == len(bs) {
			r.passes = append(r.passes, v)
		}
	}
	r.v, ok = ratio(a.ns(), b.ns())
	return r, ok
}

// targets returns all of them, in the order of the table. Where several figures
// count, the worst one does.
func targets() []target {
	most := func(bound float64, unit, wants string, m func(recorded) (reading, bool)) target {
		return target{wants, bound, false, unit, m}
	}
	least := func(bound float64, unit, wants string, m func(recorded) (reading, bool)) target {
		return target{wants, bound, true, unit, m}
	}
	uniform, hot := check.isUniform, check.isHot
	return []target{
		most(0.8, "×", "65,536 keys, serial: `hybrid` ÷ fastest keyed rival", against("hybrid", keyed, "serial", uniform)),
		most(1.3, "×", "65,536 keys, serial: `hybrid` ÷ `floor`", against("hybrid", floor, "serial", uniform)),
		most(1.3, "×", "65,536 keys, serial: `hybrid` ÷ `floor-array`, whose keys never change", overArray),
		most(0.5, "×", "65,536 keys, serial, coarse clock: `hybrid-coarse` ÷ fastest keyed rival", against("hybrid-coarse", keyed, "serial", uniform)),
		most(0.5, "×", "65,536 keys, parallel: `hybrid` ÷ fastest keyed rival", against("hybrid", keyed, "parallel", uniform)),
		most(1.0, "×", "one hot key, parallel: `hybrid` ÷ `xtime-single`", against("hybrid", single, "parallel", hot)),
		most(1.0, "×", "refused ÷ allowed, serial: `hybrid`", refusedToAllowed),
		least(300, "×", "`redis-rate` ÷ `hybrid`, serial", redisRate("hybrid")),
		least(300, "×", "`redis-rate` ÷ `hybrid-synced`, all keys being told to a Redis beside it, serial", redisRate("hybrid-synced")),
		most(0, "allocs", "allocations per check of a known key, of our limiters without a Redis (with one, those of the background count too)", allocations),
		most(5, "µs", "Redis CPU per synced key, token bucket, batches of 100 and more", syncedKey("token-bucket", false)),
		most(0.6, "×", "the same ÷ one script call per key in a pipeline, token bucket", syncedKey("token-bucket", true)),
		most(0.6, "×", "the same ÷ one script call per key in a pipeline, sliding window", syncedKey("sliding-window", true)),
		most(400, "B", "heap per key of a million, token bucket", heapPerKey("token-bucket", false)),
		most(400, "B", "heap per key of a million, sliding window, in one bucket", heapPerKey("sliding-window", false)),
		most(400, "B", "heap per key of a million, sliding window, in two buckets", heapPerKey("sliding-window", true)),
	}
}

// smallTargets are what the project wants of fleets at small limits: as exact as one process.
func smallTargets() (list []target) {
	most := func(bound float64, unit, wants string, m func(recorded) (reading, bool)) {
		list = append(list, target{wants, bound, false, unit, m})
	}
	for _, t := range []struct {
		load, wants    string
		units, fullest float64
	}{
		{"random/window/5/10", "10 nodes, window 5 per 30 s", 1.06, 1.06},
		{"random/bucket/5/10", "10 nodes, bucket 5 per 30 s", 1.05, 1.08},
		{"random/window/10/4", "4 nodes, window 10 per 30 s", 1.02, 1.03},
		{"random/window/20/30", "30 nodes, window 20 per 30 s", 1.03, 1.05},
	} {
		most(t.units, "×", t.wants+": admitted ÷ one process", ofHybrid(t.load, "to-one"))
		most(t.fullest, "×", t.wants+": fullest window, mean ÷ one process", ofHybrid(t.load, "fullest-to-one"))
	}
	most(1, "%", "refused wrongly, over all rows, of what one process admits", missingUnits)
	most(5, "ms", "from the unit that uses up a key until all of 10 nodes refuse, p99, any limit", worstSmall("random", "heard-p99-ms"))
	most(1.15, "×", "bursts of ten within 100 ms, 10 nodes, 5 per 30 s: fullest window, mean ÷ limit", worstSmall("burst-100ms", "fullest"))
	most(1.65, "×", "bursts of ten within 5 ms, 10 nodes, 5 per 30 s: fullest window, mean ÷ limit", worstSmall("burst-5ms", "fullest"))
	return list
}

// verdict says in words what has become of a target, and what single passes say.
func (t target) verdict(r recorded) (measured, passes, word string) {
	m, ok := t.measure(r)
	switch {
	case !ok:
		return "", "", "not measured"
	case t.atLeast && m.v >= t.bound, !t.atLeast && m.v <= t.bound:
		word = "pass"
	default:
		word = "**fail**"
	}
	if len(m.passes) > 1 {
		passes = figure(median(m.passes)) + " (" + figure(slices.Min(m.passes)) + " to " + figure(slices.Max(m.passes)) + ")"
	}
	return figure(m.v) + " " + t.unit, passes, word
}

func (t target) wanted() string {
	if t.atLeast {
		return "≥ " + figure(t.bound) + " " + t.unit
	}
	return "≤ " + figure(t.bound) + " " + t.unit
}

// worst gathers figures of which the highest, or lowest, is what counts.
type worst struct {
	reading
	found bool
}

func (w *worst) high(r reading, ok bool) {
	if ok && (!w.found || r.v > w.v) {
		w.reading, w.found = r, true
	}
}

func (w *worst) low(r reading, ok bool) {
	if ok && (!w.found || r.v < w.v) {
		w.reading, w.found = r, true
	}
}

// against compares a limiter with the fastest of a kind.
func against(limiter string, k kind, mode string, load func(check) bool) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) {
		var w worst
		list := r.bench.checks("Allow")
		for _, c := range list {
			if c.limiter != limiter || c.mode != mode || !load(c) {
				continue
			}
			if best, ok := fastest(list, k, c); ok {
				w.high(compare(c, best))
			}
		}
		return w.reading, w.found
	}
}

// serial hands f the ratio of each serial check of a limiter to another's with the
// same load.
func serial(of []check, limiter string, to []check, other string, f func(reading, bool)) {
	for _, c := range of {
		if c.limiter != limiter || c.mode != "serial" {
			continue
		}
		if by, ok := same(to, other, c); ok {
			f(compare(c, by))
		}
	}
}

func overArray(r recorded) (reading, bool) {
	var w worst
	list := r.bench.checks("Allow")
	uniform := slices.DeleteFunc(slices.Clone(list), func(c check) bool { return !c.isUniform() })
	serial(uniform, "hybrid", list, "floor-array", w.high)
	return w.reading, w.found
}

func refusedToAllowed(r recorded) (reading, bool) {
	var w worst
	list := r.bench.checks("Refused")
	serial(list, "hybrid", list, "hybrid-admits", w.high) // of the same moment
	return w.reading, w.found
}

// redisRate compares a call per check with one of our limiters.
func redisRate(limiter string) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) {
		var w worst
		list := r.bench.checks("Allow")
		serial(list, "redis-rate", list, limiter, w.low)
		return w.reading, w.found
	}
}

// withRedis are those of our limiters whose background works meanwhile.
var withRedis = []string{"hybrid-synced", "hybrid-syncing", "hybrid-outage"}

// allocations is the most of any check of this project's limiters.
func allocations(r recorded) (reading, bool) {
	var w worst
	for _, bench := range []string{"Allow", "Refused", "Peek"} {
		for _, c := range r.bench.checks(bench) {
			if kindOf(c.limiter) == ours && !slices.Contains(withRedis, c.limiter) {
				w.high(plain(c.median("allocs/op")))
			}
		}
	}
	return w.reading, w.found
}

func syncedKey(algorithm string, relative bool) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) {
		var w worst
		one, haveOne := r.bench.median("Sync/"+algorithm+"/take", "redis-us/key")
		for _, row := range r.bench.bench("Sync") {
			size, isBatch := strings.CutPrefix(row.path[len(row.path)-1], "batch-")
			n, err := strconv.Atoi(size)
			us, ok := row.median("redis-us/key")
			if !row.has(algorithm) || !isBatch || err != nil || n < 100 || !ok {
				continue
			}
			if !relative {
				w.high(plain(us, true))
			} else if haveOne {
				w.high(plain(ratio(us, one)))
			}
		}
		return w.reading, w.found
	}
}

// heapPerKey is what a key takes that was asked once, or, busy, in two buckets.
func heapPerKey(algorithm string, busy bool) func(recorded) (reading, bool) {
	return func(r recorded) (reading, bool) {
		var w worst
		for _, row := range r.memory.bench("Memory") {
			n, err := strconv.Atoi(row.path[len(row.path)-1])
			if err == nil && n >= 1_000_000 && row.has(algorithm) && strings.HasSuffix(row.path[1], "-busy") == busy {
				w.high(plain(row.median("B/key")))
			}
		}
		return w.reading, w.found
	}
}
