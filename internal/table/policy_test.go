package table

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// oneRow puts all keys into one row, under one tag, of hashes of their own.
func oneRow(key string, _ *limit.Rule) uint64 {
	h := uint64(42)
	for i, b := range []byte(key) {
		h += uint64(b) << (32 + i%3*8)
	}
	return h
}

// heard reports whether the policy has heard of a key in the latest sweep: until then it
// was not held.
func heard(t *testing.T, table *Table, key string, rule *limit.Rule) bool {
	t.Helper()
	c := table.lookUp(key, rule)
	c.Release()
	table.sweepForTest()
	return c.IsBusy() // that it was used is known to the sweep: so it is held
}

// The policy hears of every key that was used since the sweep looked at it, whatever its
// rule and however it is decided, and of no other.
func TestPolicyHearsOfUse(t *testing.T) {
	for what, c := range map[string]struct {
		rule       *limit.Rule
		multiplier int64
		hash       func(string, *limit.Rule) uint64
	}{
		"by a lease":         {rule: slow(1000)},
		"refused by a lease": {rule: slow(2)},
		"a window":           {rule: windowRule(t, 1000, time.Hour, 10)},
		"a log":              {rule: limit.Must(limit.SlidingLog("log", 1000, time.Hour))},
		"too large numbers":  {rule: limit.Must(limit.TokenBucket("large", 1<<40-1, 365*24*time.Hour, 1<<40))},
		"in an outage":       {rule: slow(1000), multiplier: 3},
		"no limit at all":    {rule: slow(1000), multiplier: counter.MultiplierOpen},
		"in a full row":      {rule: slow(1000), hash: oneRow},
	} {
		o := Options{hash: c.hash}
		if c.multiplier != 0 || what == "no limit at all" {
			o.Link = counter.NewLink(pace(time.Second), 4, shardOne)
			o.Link.SetMode(c.multiplier, true)
		}
		table := newUnkept(t, o)
		ask := func(key string) {
			table.Allow(key, c.rule, 1, int64(table.clock.(*clock.Manual).Advance(time.Millisecond)))
		}
		for i := range rowSize {
			ask(fmt.Sprint("first", i))
		}
		ask("k")
		if heard(t, table, "k", c.rule) {
			t.Errorf("%s: the policy hears of a key that came once", what)
		}
		for round := range 3 {
			table.clock.(*clock.Manual).Advance(11 * time.Second) // a lease refuses for 10 s and leaves no trace
			for range round + 1 {
				ask("k")
			}
			if !heard(t, table, "k", c.rule) {
				t.Errorf("%s: the policy does not hear of use, round %d", what, round)
			}
			table.policy.Wait()
			if is, _ := table.policy.Get(table.lookUp("k", c.rule).Hash()); is != table.lookUp("k", c.rule) {
				t.Errorf("%s: is not offered", what)
			}
			table.growForTest()
			if heard(t, table, "k", c.rule) {
				t.Errorf("%s: the policy hears of what nobody has used, round %d", what, round)
			}
		}
	}
}

// What the policy drops, or does not take in, it does not hold. The counter stays.
func TestPolicyLetsGo(t *testing.T) {
	table := newUnkept(t, Options{})
	rule := slow(10)
	table.Allow("k", rule, 1, int64(table.clock.Now()))
	c := table.lookUp("k", rule)
	for what, drop := range map[string]func(*ristretto.Item[*counter.Counter]){"drops": table.onEvict, "rejects": release} {
		table.hold(t, "k", rule)
		drop(&ristretto.Item[*counter.Counter]{Value: c})
		if c.IsBusy() || c.Dropped() || table.lookUp("k", rule) != c {
			t.Errorf("%s: held %v, dead %v", what, c.IsBusy(), c.Dropped())
		}
	}
	if s := table.Stats(); s.Evictions != 1 {
		t.Errorf("%+v", s)
	}
	table.onEvict(&ristretto.Item[*counter.Counter]{})
}

// A counter that has left is not kept by the policy.
func TestPolicyForgetsWhoHasLeft(t *testing.T) {
	table := newUnkept(t, Options{})
	rule, c := limit.Must(limit.TokenBucket("fast", 1, time.Second, 5)), table.clock.(*clock.Manual)
	for range 3 {
		table.Allow("k", rule, 1, int64(c.Now()))
		settle(t, table)
	}
	h := table.lookUp("k", rule).Hash()
	if is, ok := table.policy.Get(h); !ok || is != table.lookUp("k", rule) {
		t.Fatal("the policy does not hold a key that is used")
	}
	c.Advance(time.Minute)
	settle(t, table)
	if is, ok := table.policy.Get(h); ok || table.lookUp("k", rule) != nil {
		t.Errorf("the policy keeps %v", is)
	}
}

// Close waits for nobody who asks, and no check notices it.
//
// Fault 33: checks from many goroutines while the table closes.
func TestCloseDuringChecks(t *testing.T) {
	for range 5 {
		table := newTable(t, Options{MaxKeys: 64, slack: 4096, Clock: clock.System{}})
		rule := slow(300)
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for i := range 200 {
					if ok, _, _ := table.AllowBy(table.clock, "k", rule, 1); ok {
						admitted.Add(1)
					}
					table.Allow(fmt.Sprint(i), rule, 1, int64(table.clock.Now()))
				}
			})
		}
		table.Close()
		table.Close()
		all.Wait()
		if n := admitted.Load(); n != 300 {
			t.Errorf("%d units of 300", n)
		}
	}
}

// The sweep comes to every counter once in sweepAll sweeps, and no sooner: a key that is asked
// now and then need not be made anew each time. When many are new, and the fuller the table is,
// it looks at more.
func TestSweepPace(t *testing.T) {
	fast := limit.Must(limit.TokenBucket("fast", 1000, time.Second, 1))
	goOn := func() bool { return true }
	for _, c := range []struct{ keys, room, news, least int }{
		{keys: 1000, room: 1 << 20, news: 0},
		{keys: 1000, room: 1 << 20, news: 100},        // 0.4 each
		{keys: 1000, room: 1500, news: 100, least: 2}, // 3 each
	} {
		table := newUnkept(t, Options{MaxKeys: c.room - 1, slack: 1})
		for _, key := range names("k", c.keys) {
			table.Allow(key, fast, 1, int64(table.clock.Now()))
		}
		table.growForTest()
		var s sweeper
		table.sweep(&s, goOn) // of those that have just been created
		table.clock.(*clock.Manual).Advance(time.Second)
		before, entries := table.Stats().Expired, 0
		for i := range table.index.shards {
			entries += len(table.index.shards[i].rows.Load().entries)
		}
		for _, key := range names("new", c.news) {
			table.Allow(key, fast, 1, int64(table.clock.Now()))
		}
		table.sweep(&s, goOn)
		share := entries/sweepAll + sweepHold // it may end in the middle of a shard
		got, least, most := int(table.Stats().Expired-before), c.least*c.news, sweepFull*c.news+share
		if c.least == 0 {
			most = c.news + share
		}
		if got < least || got > most {
			t.Errorf("%+v: %d of %d expired in a sweep, want %d to %d", c, got, c.keys, least, most)
		}
		for range sweepAll + sweepAll/10 {
			table.sweep(&s, goOn)
		}
		if n := int(table.Stats().Expired); n < c.keys {
			t.Errorf("%+v: %d of %d have expired at last", c, n, c.keys)
		}
	}
}
