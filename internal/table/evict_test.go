package table

import (
	"fmt"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/report"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// newUnkept is newTable of one that does nothing by itself, so that a test does not meet
// its sweep.
func newUnkept(t *testing.T, o Options) *Table {
	t.Helper()
	table := newTable(t, o)
	table.closeOnce.Do(func() {
		close(table.stop)
		<-table.kept
	})
	t.Cleanup(func() {
		table.closing.Store(true)
		table.policy.Close()
	})
	return table
}

// fullTable returns a table with room for four keys, which are in one row and have been
// asked once, so that none looks used.
func fullTable(t *testing.T, rule *limit.Rule, o Options) *Table {
	t.Helper()
	o.MaxKeys, o.slack, o.hash = 1, 3, oneHash
	table := newUnkept(t, o)
	for _, key := range names("k", 4) {
		table.Allow(key, rule, 1, int64(table.clock.Now()))
	}
	return table
}

// newcomer asks for a new key, and returns which of the four had to go for it.
func newcomer(t *testing.T, table *Table, rule *limit.Rule) (gone []string) {
	t.Helper()
	table.Allow("new", rule, 1, int64(table.clock.Now()))
	for _, key := range names("k", 4) {
		if table.lookUp(key, rule) == nil {
			gone = append(gone, key)
		}
	}
	check(t, table)
	return gone
}

// hold says of a counter that the policy holds it, as if it had been offered after some use.
func (t *Table) hold(tb testing.TB, key string, rule *limit.Rule) {
	tb.Helper()
	c := t.lookUp(key, rule)
	if c.Check(int64(t.clock.Now()), 0, rule); !c.Offer() {
		tb.Fatalf("%q does not look used", key)
	}
}

// A counter that was not used lately and that the policy does not hold goes for a new key; if there
// is none, the first. It does not matter whether it refuses.
func TestWhoGoesForANewcomer(t *testing.T) {
	rule := slow(10)
	for _, c := range []struct {
		used, held, full []int
		gone             string
	}{
		{nil, nil, nil, "k 0"},
		{[]int{0, 1, 3}, nil, nil, "k 2"},
		{nil, []int{0, 1, 2}, nil, "k 3"},
		{[]int{0, 3}, []int{2}, nil, "k 1"},
		{[]int{0, 1}, []int{2, 3}, nil, "k 0"},
		{nil, nil, []int{0, 2}, "k 0"},
		{[]int{1}, []int{3}, []int{0, 2}, "k 0"},
		{[]int{0}, []int{2}, []int{1}, "k 1"},
		{nil, nil, []int{0, 1, 2, 3}, "k 0"},
	} {
		table := fullTable(t, rule, Options{})
		now := int64(table.clock.Now())
		for _, i := range c.full {
			k := table.lookUp(fmt.Sprint("k ", i), rule)
			k.Check(now, 9, rule)
			k.Offer()
			k.Release()
		}
		for _, i := range c.used {
			table.Allow(fmt.Sprint("k ", i), rule, 1, now)
		}
		for _, i := range c.held {
			table.hold(t, fmt.Sprint("k ", i), rule)
		}
		gone := newcomer(t, table, rule)
		s := table.Stats()
		if len(gone) != 1 || gone[0] != c.gone || s.Forgotten != 1 || s.Overflow != 0 {
			t.Errorf("%+v: %v gone, %+v", c, gone, s)
		}
	}
}

// A counter whose units are not reported stays if another can go, also if only its lease knows of them.
func TestUnreportedCountersGoLast(t *testing.T) {
	rule := slow(10)
	link := counter.NewLink(pace(time.Second), 4, shardOne)
	table := fullTable(t, rule, Options{Link: link})
	now := int64(table.clock.Now())
	link.Drain(func(c *counter.Counter, urgent bool) {
		if rep, ok := collect(c, now, queueOf(urgent)); ok {
			c.Settle(now, report.Answer{Rule: rep.Rule, At: now, ServerNow: now, State: report.State{Level: arith.Of(rule).Cost(1)}})
		}
	})
	for _, key := range names("k", 4) {
		table.Allow(key, rule, 0, now) // is queued
		if key == "k 2" {
			continue
		}
		if _, _, leased := table.AllowBy(at(now), key, rule, 1); !leased {
			t.Fatalf("%q has units besides those of its lease: the test shows nothing", key)
		}
	}
	if gone := newcomer(t, table, rule); len(gone) != 1 || gone[0] != "k 2" {
		t.Errorf("%v were forgotten, of which k 2 alone has nothing to report", gone)
	}
}

// If no counter was reported, as in an outage, the one goes that has used the smallest share of its limit.
//
// Fault 106: an attack while Redis is away.
func TestUnreportedCountersGoBySize(t *testing.T) {
	rule := slow(10)
	for _, units := range [][4]int64{{9, 8, 0, 5}, {1, 9, 9, 9}, {9, 9, 9, 8}, {3, 2, 2, 9}} {
		table := fullTable(t, rule, Options{Link: counter.NewLink(pace(time.Second), 4, shardOne)})
		now := int64(table.clock.Now())
		least := 0
		for i, n := range units { // besides the unit that each has
			table.lookUp(fmt.Sprint("k ", i), rule).Check(now, n, rule)
			if n < units[least] {
				least = i
			}
		}
		if gone := newcomer(t, table, rule); len(gone) != 1 || gone[0] != fmt.Sprint("k ", least) || table.group.Link.Unreported.Load() != 1+units[least] {
			t.Errorf("%v: %v went, and %d units with it", units, gone, table.group.Link.Unreported.Load())
		}
	}
}

// A look at a counter that has to stay, or a report of it, does not make it look used, nor hides
// that it was.
func TestLooksAreNoUse(t *testing.T) {
	for what, link := range map[string]*counter.Link{"alone": nil, "shared": newTestLink()} {
		t.Run(what, func(t *testing.T) { looksAreNoUse(t, link) })
	}
}

func looksAreNoUse(t *testing.T, link *counter.Link) {
	rule := slow(10)
	table := fullTable(t, rule, Options{Link: link})
	now := int64(table.clock.Now())
	table.Allow("k 1", rule, 1, now)
	table.Allow("k 1", rule, 1, now)
	table.sweepForTest() // that k 1 was used is known by now
	table.Allow("k 2", rule, 1, now)
	sh := table.index.shard(42)
	for range 3 {
		for i, key := range names("k", 4) {
			c := table.lookUp(key, rule)
			sh.mu.Lock()
			table.forgetLocked(sh, c, counter.Idle, now)
			sh.mu.Unlock()
			if link != nil {
				if rep, ok := collect(c, now, counter.Normal); ok {
					c.Settle(now, report.Answer{Rule: rule, State: report.State{Level: rep.Ahead}, At: now, ServerNow: now})
				}
			}
			c.Release()
			if used := c.IsBusy(); used != (i == 2) {
				t.Errorf("%s looks used: %v", key, used)
			}
		}
		table.growForTest()
	}
}

// Counters whose rows are full leave as all others when they are as if never used.
func TestIdleCountersLeaveFromFullRows(t *testing.T) {
	table := newUnkept(t, Options{hash: oneHash})
	rule := limit.Must(limit.TokenBucket("fast", 1, time.Second, 1))
	flood(table, rule, "k", 5*rowSize)
	if n := len(table.index.shard(42).extra); n != 3*rowSize {
		t.Fatalf("%d counters besides the two rows", n)
	}
	table.clock.(*clock.Manual).Advance(2 * time.Second)
	table.Allow("k 0", rule, 1, int64(table.clock.Now()))
	table.Allow(fmt.Sprint("k ", 5*rowSize-1), rule, 1, int64(table.clock.Now()))
	table.sweepForTest()
	table.sweepForTest() // of some was to be told first that they had been used
	if s := table.Stats(); s.Live != 2 || s.Expired != 5*rowSize-2 || s.Forgotten != 0 {
		t.Errorf("%+v", s)
	}
	check(t, table)
}

func queueOf(urgent bool) counter.Queue {
	if urgent {
		return counter.Urgent
	}
	return counter.Normal
}
