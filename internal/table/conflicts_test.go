package table

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// conflictsOf returns a limiter, and the pairs that it tells of.
func conflictsOf(t *testing.T) (table *Table, told *[][2]*limit.Rule) {
	told = new([][2]*limit.Rule)
	return newTable(t, Options{Clock: clock.NewManual(start), Conflict: func(was, is *limit.Rule) {
		*told = append(*told, [2]*limit.Rule{was, is})
	}}), told
}

// ways asks for a unit of a key in every way that there is.
func ways(table *Table) map[string]func(key string, rule *limit.Rule) {
	now := int64(table.clock.Now())
	return map[string]func(key string, rule *limit.Rule){
		"Allow": func(key string, rule *limit.Rule) { table.AllowBy(table.clock, key, rule, 1) },
		"Take":  func(key string, rule *limit.Rule) { table.takeAt(key, rule, 1, now) },
		"Peek": func(key string, rule *limit.Rule) {
			table.takeAt(key, rule, 1, now)
			table.Peek(table.clock, key, rule)
		},
		"TakeAtMost": func(key string, rule *limit.Rule) { table.TakeAtMost(key, rule, 1, now) },
		"TakeAll": func(key string, rule *limit.Rule) {
			table.TakeAll([]limit.Check{{Key: key, Rule: rule}}, now, make([]limit.Result, 1))
		},
	}
}

// Rules of one name that count differently are noticed when one is used again after the
// other: in every way to ask, however busy the key was before.
//
// Fault 87: each time counted, told once for each name.
func TestConflicts(t *testing.T) {
	base := limit.Must(limit.TokenBucket("api", 1, time.Second, 1_000_000))
	for what, other := range map[string]*limit.Rule{
		"rate":      limit.Must(limit.TokenBucket("api", 2, time.Second, 1_000_000)),
		"period":    limit.Must(limit.TokenBucket("api", 1, time.Minute, 1_000_000)),
		"algorithm": limit.Must(limit.SlidingWindow("api", 1_000_000, time.Second)),
	} {
		table, _ := conflictsOf(t)
		for how := range ways(table) {
			table, told := conflictsOf(t)
			ask := ways(table)[how]
			for range 2000 { // a lease may answer
				ask("k", base)
			}
			ask("k", other)
			if n := table.Stats().Conflicts; n != 0 || len(*told) != 0 {
				t.Errorf("%s, %s: %d conflicts, though the new rule has only replaced the old one", what, how, n)
			}
			ask("k", base)
			if n := table.Stats().Conflicts; n != 1 || len(*told) != 1 || (*told)[0] != [2]*limit.Rule{other, base} {
				t.Errorf("%s, %s: %d conflicts, told of %v", what, how, n, *told)
			}
			if what == "algorithm" {
				continue // of two counters the change is not seen each time
			}
			for range 5 {
				ask("k", other)
				ask("k", base)
			}
			if n := table.Stats().Conflicts; n != 11 || len(*told) != 1 {
				t.Errorf("%s, %s: %d conflicts, %d told", what, how, n, len(*told))
			}
		}
	}
}

// Plans, dry runs, names of their own and changes for good are no conflicts.
func TestNoConflicts(t *testing.T) {
	table, told := conflictsOf(t)
	var plans []*limit.Rule
	for i := range int64(5) {
		r := limit.Must(limit.SlidingWindow("plan", 10+i, time.Second))
		plans = append(plans, r, r.DryRun(), limit.Must(limit.SlidingWindow(fmt.Sprint("own", i), 10, time.Duration(i+1)*time.Second)))
	}
	for _, ask := range ways(table) {
		for i := range 500 {
			ask(fmt.Sprint("k", i%7), plans[i*5%len(plans)])
		}
	}
	// As limits are changed while a program runs, again and again.
	for i := range time.Duration(20) {
		for _, ask := range ways(table) {
			for k := range 20 {
				ask(fmt.Sprint("k", k), limit.Must(limit.SlidingWindow("tuned", 100, (i+1)*time.Second)))
			}
		}
	}
	if n := table.Stats().Conflicts; n != 0 || len(*told) != 0 {
		t.Errorf("%d conflicts: %v", n, *told)
	}
}
