package table

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What tests of several packages use, by short names.
var (
	start      = limittest.Start
	names      = limittest.Names
	slow       = limittest.Slow
	windowRule = limittest.WindowRule
)

// newTable returns a table on a clock that stands still.
func newTable(tb testing.TB, o Options) *Table {
	tb.Helper()
	if o.Clock == nil {
		o.Clock = clock.NewManual(start)
	}
	t, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.Close)
	return t
}

// at is a clock that stands still.
type at int64

func (a at) Now() time.Duration { return time.Duration(a) }

// takeAt is Take at a time.
func (t *Table) takeAt(key string, rule *limit.Rule, n, now int64) limit.Result {
	res, _ := t.Take(at(now), key, rule, n)
	return res
}

// collect begins an exchange of a counter, and returns the report.
func collect(c *counter.Counter, now int64, from counter.Queue) (rep report.Report, ok bool) {
	if ok = c.Collect(now, from); ok {
		c.Report(now, false, &rep)
	}
	return rep, ok
}

// Allow decides for n units of key at now (ns), and returns the source of the decision.
func (t *Table) Allow(key string, rule *limit.Rule, n, now int64) (bool, limit.Source) {
	allowed, src, _ := t.AllowBy(at(now), key, rule, n)
	return allowed, src
}

// settle has the policy hear of all that is used, and waits until it has decided.
func settle(tb testing.TB, t *Table) {
	tb.Helper()
	t.sweepForTest()
	t.policy.Wait()
}

// sweepForTest looks at every counter.
func (t *Table) sweepForTest() {
	var s sweeper
	for i := range t.index.shards {
		for t.sweepPart(&t.index.shards[i], &s, int64(t.clock.Now())) {
		}
		t.tell(&s)
	}
}

// check fails if the table is not as it must be between two calls. It holds all shards,
// because the sweep may forget a counter at any time.
func check(tb testing.TB, t *Table) {
	tb.Helper()
	t.policy.Wait()
	live := int64(0)
	for i := range t.index.shards {
		t.index.shards[i].mu.Lock()
		defer t.index.shards[i].mu.Unlock()
	}
	for i := range t.index.shards {
		live += int64(checkShardLocked(tb, t, &t.index.shards[i]))
	}
	if s := t.Stats(); s.Live != live {
		tb.Errorf("Stats say %d live counters, there are %d", s.Live, live)
	}
}

// checkShardLocked looks for disorder in a shard and counts what is in it.
func checkShardLocked(tb testing.TB, t *Table, sh *shard) int {
	tb.Helper()
	seen := make(map[string]bool)
	note := func(c *counter.Counter, e *counter.Entry) {
		h, print := t.hashOf(c.Key(), c.Rule())
		id := fmt.Sprint(arith.Of(c.Rule()).Algorithm, c.Rule().Name(), c.Stored().Hashed, c.Key())
		switch {
		case c.Dropped():
			tb.Errorf("dead counter of %q in the index", c.Key())
		case c.Entry() != e || t.index.shard(h) != sh || e != nil && e.Print() != print:
			tb.Errorf("counter of %q is in another place", c.Key())
		case seen[id]:
			tb.Errorf("%q has two live counters", c.Key())
		}
		seen[id] = true
	}
	r := sh.rows.Load()
	for i := range r.entries {
		e := &r.entries[i]
		c, tag := e.Counter(), r.tags[i/rowSize].Load()>>(i%rowSize*8)&0xff
		if (c == nil) != (tag == 0) {
			tb.Errorf("entry %d has tag %d and counter %v", i, tag, c)
		}
		if c != nil {
			if h := c.Hash(); tag != tagOf(h) || uint64(i/rowSize) != r.row(h) && uint64(i/rowSize) != r.other(r.row(h)) {
				tb.Errorf("entry %d has tag %d, the hash of its counter is %x", i, tag, h)
			}
			note(c, e)
		}
	}
	for _, x := range sh.extra {
		if _, print := t.hashOf(x.c.Key(), x.c.Rule()); print != x.print && !x.c.Stored().Hashed {
			tb.Errorf("counter of %q is filed under another fingerprint", x.c.Key())
		}
		note(x.c, nil)
	}
	if sh.live != len(seen) {
		tb.Errorf("a shard counts %d counters, there are %d", sh.live, len(seen))
	}
	return len(seen)
}

// pace has counters report once in d, if their rule lets them.
func pace(d time.Duration) counter.Pace { return counter.Pace{Interval: d / 5, MaxLag: d} }

// shardOne puts every key into shard 1.
func shardOne(string) int { return 1 }

func newTestLink() *counter.Link { return counter.NewLink(pace(500*time.Millisecond), 4, shardOne) }
