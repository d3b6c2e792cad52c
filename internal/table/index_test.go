package table

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/tally"
	"github.com/hybridlimit/hybridlimit/limit"
)

// oneHash puts all keys into one row, under one tag.
func oneHash(string, *limit.Rule) uint64 { return 42 }

// fixedHash spreads keys as usual, but in the same way in each run. It is for tests in which something may
// happen by chance, so that it happens always or never.
func fixedHash(key string, _ *limit.Rule) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.LittleEndian.Uint64(sum[:])
}

// lookUp returns the counter of a key, nil if there is none.
func (t *Table) lookUp(key string, rule *limit.Rule) *counter.Counter {
	h, print := t.hashOf(key, rule)
	sh := t.index.shard(h)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.findLocked(h, print, key, rule)
}

// forgetForTest removes the counter of a key.
func (t *Table) forgetForTest(tb testing.TB, key string, rule *limit.Rule) {
	tb.Helper()
	c := t.lookUp(key, rule)
	sh := t.index.shard(c.Hash())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if _, ok := t.forgetLocked(sh, c, counter.Used, int64(t.clock.Now())); !ok {
		tb.Fatalf("%q stays", key)
	}
}

// word returns the word of an entry, its first field.
func word(e *counter.Entry) uint64 { return (*atomic.Uint64)(unsafe.Pointer(e)).Load() }

// growForTest makes more entries in every shard, whether there should be or not.
func (t *Table) growForTest() {
	for i := range t.index.shards {
		sh := &t.index.shards[i]
		sh.mu.Lock()
		sh.growLocked(sh.rowsLocked(), int64(t.clock.Now()))
		sh.mu.Unlock()
	}
}

// An entry that serves another key later answers for that alone, also to who still has it
// from before.
func TestEntriesThatServeOthers(t *testing.T) {
	table := newTable(t, Options{hash: oneHash})
	rule, now := slow(10), int64(table.clock.Now())
	_, print := table.hashOf("first", rule)
	table.Allow("first", rule, 4, now)
	was := table.lookUp("first", rule).Entry()
	table.forgetForTest(t, "first", rule)
	if _, _, v := was.Take(print, rule, 1, now); v != counter.Unanswered {
		t.Errorf("%v of a key that was forgotten", v)
	}
	table.Allow("second", rule, 1, now)
	second := table.lookUp("second", rule)
	if second.Entry() != was {
		t.Fatal("the second key has another entry: the test shows nothing")
	}
	before := word(was)
	if _, _, v := was.Take(print, rule, 1, now); v != counter.Unanswered {
		t.Errorf("%v by the entry of another key", v)
	}
	if _, _, v := was.Peek(print, rule, now); v != counter.Unanswered {
		t.Errorf("%v at a glance by the entry of another key", v)
	}
	if res := table.Peek(table.clock, "first", rule); res.Remaining != 6 {
		t.Errorf("a key that has left: %+v", res)
	}
	for i := range 8 {
		if ok, _, leased := table.AllowBy(table.clock, "first", rule, 1); ok != (i < 6) || leased != (ok && i > 0) {
			t.Errorf("check %d of the first key: %v, by a lease %v", i, ok, leased)
		}
	}
	if word(was) != before || table.lookUp("first", rule).Entry() == was {
		t.Error("the first key has used the entry of another")
	}
	check(t, table)
}

// While a shard grows, with its lock held, checks of its keys are decided, of those that have
// moved and of the others.
func TestChecksGoOnDuringGrowth(t *testing.T) {
	table := newTable(t, Options{hash: oneRow})
	rule, now := slow(10), int64(table.clock.Now())
	for _, key := range []string{"moved", "other"} {
		table.Allow(key, rule, 1, now)
	}
	c := table.lookUp("moved", rule)
	sh := table.index.shard(c.Hash())
	sh.mu.Lock()
	newRows(1).put(c.Hash(), c.MoveTo)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 11 {
			for _, key := range []string{"moved", "other"} {
				if ok, _ := table.Allow(key, rule, 1, now); ok != (i < 9) {
					t.Errorf("check %d of %q: %v", i, key, ok)
				}
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute): // for ever, were it not for this
		t.Error("checks wait for the lock of the shard")
	}
	sh.mu.Unlock()
	<-done
}

// When a shard has grown all of its keys are found, with what they have consumed, by a
// lease or not, also those that had no room in their rows.
func TestGrowthKeepsAll(t *testing.T) {
	for name, hash := range map[string]func(string, *limit.Rule) uint64{"spread": nil, "in one row": oneHash} {
		table := newTable(t, Options{MaxKeys: 2000, hash: hash, Tallies: new(tally.Tallies)})
		rules := []*limit.Rule{slow(10), windowRule(t, 10, time.Hour, 10), limit.Must(limit.SlidingLog("log", 10, time.Hour))}
		keys, now := names("k", 100), int64(table.clock.Now())
		for _, key := range keys {
			for _, r := range rules {
				for range 3 {
					table.Allow(key, r, 1, now)
				}
			}
		}
		if hash != nil {
			sh := table.index.shard(42)
			sh.mu.Lock() // it may be growing
			n := len(sh.extra)
			sh.mu.Unlock()
			if all := len(keys) * len(rules); n != all-2*rowSize && n != all-rowSize { // the latter while there is one row
				t.Errorf("%s: %d counters besides the rows", name, n)
			}
		}
		before := leased(table)
		table.growForTest()
		check(t, table)
		if after := leased(table); after != before {
			t.Errorf("%s: %v units counted, before %v", name, after, before)
		}
		for _, key := range keys {
			for _, r := range rules {
				if res := table.Peek(table.clock, key, r); res.Remaining != 7 {
					t.Errorf("%s: %q by %v: %+v", name, key, r, res)
				}
			}
		}
		if s := table.Stats(); s.Live != 300 || s.Created != 300 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A key whose row is full has an entry in the other row of the pair, a lease, and one counter,
// also when there is room in its own row again.
func TestOtherRowOfAPair(t *testing.T) {
	table := newUnkept(t, Options{hash: oneRow})
	rule, now := slow(10), int64(table.clock.Now())
	sh := table.index.shard(42)
	sh.mu.Lock()
	sh.rows.Store(newRows(4))
	sh.mu.Unlock()
	keys := names("k", 2*rowSize)
	for _, key := range keys {
		table.Allow(key, rule, 1, now)
	}
	if n := len(sh.extra); n != 0 {
		t.Fatalf("%d counters have no entry", n)
	}
	for i, key := range keys {
		h, print := table.hashOf(key, rule)
		e := table.index.search(h, print)
		if e == nil || e.Counter() != table.lookUp(key, rule) {
			t.Fatalf("%q has entry %v", key, e)
		}
		if _, _, v := e.Take(print, rule, 1, now); v != counter.Admitted {
			t.Errorf("%q: the lease says %v", key, v)
		}
		if i%2 == 0 && i < rowSize {
			table.forgetForTest(t, key, rule)
		}
	}
	for _, key := range keys[rowSize:] {
		if ok, _, counted := table.AllowBy(table.clock, key, rule, 1); !ok || !counted {
			t.Errorf("%q: admitted %v, by a lease %v", key, ok, counted)
		}
		table.Allow(key, rule, 10, now) // is refused, and asks the counter
	}
	for range 4 {
		table.Allow(keys[0], rule, 1, now)
		table.Allow(keys[2], rule, 1, now)
	}
	if s := table.Stats(); s.Created != 2*rowSize+2 || s.Live != 2*rowSize-2 {
		t.Errorf("%+v", s)
	}
	check(t, table)
}

// Checks go on while their shards grow, and no unit is lost or admitted twice.
func TestGrowthDuringChecks(t *testing.T) {
	table := newTable(t, Options{MaxKeys: 1000, Clock: clock.System{}})
	rule := slow(500)
	keys := names("k", 8)
	var admitted [8]atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 400 {
				for i, key := range keys {
					if ok, _, _ := table.AllowBy(table.clock, key, rule, 1); ok {
						admitted[i].Add(1)
					}
				}
			}
		})
	}
	for range 300 {
		table.growForTest()
		table.sweepForTest()
	}
	all.Wait()
	for i := range admitted {
		if n := admitted[i].Load(); n != 500 {
			t.Errorf("%s: %d units of 500", keys[i], n)
		}
	}
	check(t, table)
}

// leased returns how many units leases have admitted, of which Survey has counted the last.
func leased(table *Table) (n int64) {
	table.Survey(int64(table.clock.Now()))
	for _, is := range table.group.Tallies.All() {
		n += is.Units[tally.Local]
	}
	return n
}

// What leases admit is counted once: while they last, when they are revoked, and when their
// counter is forgotten.
func TestAdmittedCountsOnce(t *testing.T) {
	table := newTable(t, Options{Tallies: new(tally.Tallies)})
	now, sum := int64(table.clock.Now()), int64(0)
	expect := func(what string) {
		t.Helper()
		for range 2 {
			if n := leased(table); n != sum {
				t.Errorf("%s: %v, want %d", what, n, sum)
			}
		}
	}
	for _, r := range []*limit.Rule{slow(100), windowRule(t, 100, time.Hour, 10)} {
		ask := func(n int64) {
			if ok, _, counted := table.AllowBy(at(now), "k", r, n); !ok {
				t.Fatal("refused")
			} else if counted {
				sum += n
			}
		}
		ask(1)
		expect("the counter has decided")
		for range 3 {
			ask(1)
		}
		expect("3 by a lease")
		ask(2)
		expect("2 more")
		c := table.lookUp("k", r)
		c.Retention(now) // revokes the lease, and grants another
		expect("revoked")
		ask(5)
		c.Retention(now) // revokes the lease, and grants another
		expect("revoked, and not looked at before")
		ask(3)
		table.forgetForTest(t, "k", r)
		expect("forgotten")
	}
	if sum != 2*13 {
		t.Errorf("%d units by leases: the test shows little", sum)
	}
}

// The same while there are checks, looks, revocations and newcomers: it never goes down, and in
// the end is what was said to be counted.
//
// Faults 37, 39: everything at once, then the table's invariants.
func TestAdmittedDuringChecks(t *testing.T) {
	table := newTable(t, Options{MaxKeys: 16, slack: 16, Clock: clock.System{}, Tallies: new(tally.Tallies)})
	rule := limit.Must(limit.TokenBucket("fast", 1_000_000, time.Second, 1000))
	var counted atomic.Int64
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			for i := range 4000 {
				key := fmt.Sprint(i % (5 + 20*g))
				if _, _, is := table.AllowBy(table.clock, key, rule, 1); is {
					counted.Add(1)
				}
				if c := table.Find(key, rule); c != nil && i%50 == 0 {
					c.Revoke(int64(table.clock.Now()))
				}
				table.Peek(table.clock, key, rule)
			}
		})
	}
	last := int64(0)
	for range 200 {
		n := leased(table)
		if n < last {
			t.Fatalf("%d units, %d before", n, last)
		}
		last = n
		table.growForTest()
	}
	all.Wait()
	if n := leased(table); n != counted.Load() || n == 0 {
		t.Errorf("%d units, %d were counted", n, counted.Load())
	}
	settle(t, table)
	check(t, table)
}

// Two shards that share a line of the cache would be slow for two processors.
func TestShardFillsItsCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(shard{}); unsafe.Sizeof(uintptr(0)) == 8 && size%64 != 0 {
		t.Errorf("a shard has %d bytes", size)
	}
}
