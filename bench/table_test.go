package bench

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

var full = flag.Bool("full", false, "measure every limiter and every load, as for the recorded results")

// opener makes a limiter that knows the rule and has room for the keys. It is
// closed with the benchmark.
type opener func(tb testing.TB, keys []string, rule *limit.Rule) asks

// contender is a limiter to be measured, and what it can be asked. The zero
// values are those of a full one.
type contender struct {
	name    string
	open    opener
	keyless bool // one limiter for everybody
	closed  bool // knows no keys but those that it was opened with
	remote  bool // asks a Redis with every check
	admits  bool // is asked for what it admits, in a row of what is refused
}

// inProcess decide in the process. Those to be compared stand side by side:
// figures are about the same moment only if they are taken in it.
var inProcess = []contender{
	{name: "floor", open: floorBy(nil), closed: true},
	{name: "floor-array", open: openFloorArray, closed: true},
	{name: "floor-coarse", open: openFloorCoarse, closed: true},
	{name: "hybrid", open: openHybrid},
	{name: "hybrid-coarse", open: openHybridCoarse},
	{name: "local", open: openLocal},
	{name: "local-coarse", open: openLocalCoarse},
	{name: "hybrid-synced", open: openSynced},
	{name: "xtime-map", open: openXtimeMap},
	{name: "memorystore", open: openMemorystore},
	{name: "throttled", open: openThrottled},
	{name: "ulule", open: openUlule},
	{name: "httprate", open: openHTTPRate},
}

// single has no keys, and is in the rows of one key only.
var single = []contender{{name: "xtime-single", open: openXtime, keyless: true}}

// byRule are our other algorithms; hybrid itself is a funnel.
var byRule = []contender{
	{name: "hybrid-sliding", open: ruled(limit.SlidingWindow)},
	{name: "hybrid-fixed", open: ruled(limit.FixedWindow)},
	{name: "hybrid-one-bucket", open: ruled(func(name string, units int64, window time.Duration) (*limit.Rule, error) {
		return limit.SlidingWindowBuckets(name, units, window, 1)
	})},
}

// byLog remembers each unit, so that it gets a short window. It shares nothing.
var byLog = []contender{{name: "local-log", open: openLog}}

// byState are what may be going on between us and Redis; hybrid-synced is the
// one that nothing is wrong with.
var byState = []contender{
	{name: "hybrid-outage", open: openOutage},
	{name: "hybrid-syncing", open: openSyncing},
}

// few stand for all in the rows that show what a load does to a kind of check.
var few = some(inProcess, named("floor", "hybrid", "memorystore"))

// usual are measured without -full: the floor, ours, and the rivals that the README names.
var usual = named("floor", "hybrid", "hybrid-coarse", "hybrid-sliding", "hybrid-synced", "local",
	"xtime-map", "xtime-single", "memorystore", "redis-rate", "redis-rate-pipelined")

// usually returns the contenders of a table, with -full all of them.
func usually(of []contender) []contender {
	if *full {
		return of
	}
	return some(of, usual)
}

// seldom is usually for a table that shows what a load does: few are enough for that.
func seldom(of []contender) []contender {
	if *full {
		return of
	}
	return few
}

// named tells whether a contender has one of the names.
func named(names ...string) func(contender) bool {
	return func(c contender) bool { return slices.Contains(names, c.name) }
}

// overRedis ask a Redis with every check.
var overRedis = []contender{
	{name: "redis-rate", open: openRedisRate, remote: true},
	{name: "redis-rate-pipelined", open: openRedisRatePipelined, remote: true},
}

// million are in the row of 1,000,000 keys, most of whose time goes into making
// the keys known.
var million = some(inProcess, func(c contender) bool { return !named("local-coarse", "hybrid-synced", "floor-coarse")(c) })

// join puts lists of contenders one after another.
func join(lists ...[]contender) (all []contender) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// some returns the contenders that a table is for.
func some(of []contender, fit func(contender) bool) (out []contender) {
	for _, c := range of {
		if fit(c) {
			out = append(out, c)
		}
	}
	return out
}

// row measures every contender with a load, one after the other. Each is opened
// once, however often it is measured.
func row(b *testing.B, l *load, of []contender, rule *limit.Rule, want bool) {
	for _, c := range of {
		b.Run(c.name+"/"+l.name, func(b *testing.B) {
			rule, want := rule, want
			if c.admits {
				rule, want = generous, true
			}
			a := c.open(b, l.keys, rule)
			if c.remote {
				// What a round trip costs does not depend on whether Redis
				// knows the key; one that is to be refused must be used up.
				a.allow(l.keys[0])
			} else {
				warm(l.keys, a.allow)
			}
			l.run(b, a.allow, want)
		})
	}
}

// BenchmarkAllow: a check that is admitted, <limiter>/<keys>/<distribution>.
// The base case, with every contender, is 65,536 keys asked evenly; the other
// rows differ from it in one thing.
func BenchmarkAllow(b *testing.B) {
	row(b, evenly(uniform), usually(join(inProcess, byRule, byLog, byState, overRedis)), generous, true)
	row(b, evenly(1), usually(join(inProcess, single, overRedis)), generous, true)
	row(b, evenly(1000), seldom(inProcess), generous, true)
	row(b, zipf(uniform), seldom(inProcess), generous, true)
	if !*full {
		return
	}
	// Half as many need half as much of the last cache, of which others leave us a part.
	row(b, evenly(uniform/2), some(inProcess, named("floor", "floor-array", "hybrid", "hybrid-coarse", "memorystore")), generous, true)
	row(b, evenly(1_000_000), million, generous, true)
	row(b, long(uniform), million, generous, true)
}

// BenchmarkRefused: a check that is refused, as most are in an attack.
func BenchmarkRefused(b *testing.B) {
	row(b, evenly(uniform), withAdmitted(seldom(join(inProcess, byRule, byState))), usedUp, false)
	row(b, evenly(1), withAdmitted(seldom(join(inProcess, single, overRedis))), usedUp, false)
	if !*full {
		return
	}
	row(b, evenly(1000), withAdmitted(few), usedUp, false)
	row(b, evenly(1_000_000), withAdmitted(some(few, named("hybrid"))), usedUp, false)
	row(b, zipf(uniform), withAdmitted(few), usedUp, false)
}

// withAdmitted puts beside hybrid its checks that are admitted, of the same moment.
func withAdmitted(of []contender) []contender {
	i := slices.IndexFunc(of, named("hybrid"))
	return slices.Insert(slices.Clone(of), i+1, contender{name: "hybrid-admits", open: openHybrid, admits: true})
}

// BenchmarkPeek: a look at a key that consumes nothing, where there is one.
func BenchmarkPeek(b *testing.B) {
	peekRow(b, evenly(uniform), seldom(join(inProcess, byRule, byState)))
	if !*full {
		return
	}
	for _, l := range []*load{evenly(1), evenly(1000), zipf(uniform)} {
		peekRow(b, l, few)
	}
	peekRow(b, evenly(1_000_000), some(few, named("hybrid")))
}

// peekRow is row of peeks.
func peekRow(b *testing.B, l *load, of []contender) {
	for _, c := range of {
		b.Run(c.name+"/"+l.name, func(b *testing.B) {
			a := c.open(b, l.keys, generous)
			if a.peek == nil {
				b.Skip("it cannot")
			}
			warm(l.keys, a.allow)
			l.run(b, a.peek, true)
		})
	}
}
