package table

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// Its counter may be forgotten, and another made: the key finds that one, in whatever entry.
func TestHandleFindsAnotherCounter(t *testing.T) {
	rule := slow(10)
	table := newTable(t, Options{MaxKeys: 64})
	var k Handle
	k.Bind(table, "k", rule)
	allow := func(n int64) bool { ok, _, _ := k.AllowBy(table.clock, n); return ok }
	allow(4)
	was := k.entry.Load()
	if was == nil || was.Counter().Key() != "k" {
		t.Fatalf("bound to %v", was)
	}
	c, now := was.Counter(), int64(table.clock.Now())
	sh := table.index.shard(c.Hash())
	sh.mu.Lock()
	if !table.forgetLocked(sh, c, counter.Partial, now) {
		t.Fatal("not forgotten")
	}
	sh.mu.Unlock()
	if !allow(7) || k.entry.Load().Counter() == c {
		t.Error("not found")
	}
	if ok, _ := table.Allow("k", rule, 3, now); !ok || allow(1) {
		t.Error("counted elsewhere")
	}
}

// One key has one counter, also if everybody binds it at the same time, in a
// flood of others.
func TestHandlesConcurrently(t *testing.T) {
	rule := slow(100)
	table := newTable(t, Options{MaxKeys: 64})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				if i%50 == 0 {
					flood(table, rule, string(rune('a'+g)), 200)
				}
				var k Handle
				k.Bind(table, "k", rule)
				if ok, _, _ := k.AllowBy(table.clock, 1); ok {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := admitted.Load(); got != 100 {
		t.Errorf("admitted %d of 100", got)
	}
	check(t, table)
}
