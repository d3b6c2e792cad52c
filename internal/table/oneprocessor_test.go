package table

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// No decision waits for the goroutine of the table: with one processor it may not run for as long
// as there are checks. So the same must hold if it never runs.
//
// Fault 95: no new key is refused at its first check as long as others may be forgotten, however few they are.
func TestNewKeysBesideKeysThatRefuse(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for what, rule := range map[string]*limit.Rule{
		"bucket": slow(10),
		"window": windowRule(t, 10, 24*time.Hour, 10),
		"log":    limit.Must(limit.SlidingLog("log", 10, 24*time.Hour)),
	} {
		t.Run(what, func(t *testing.T) { floodBesideRefused(t, newTable(t, Options{MaxKeys: 1000}), rule, 200) })
		t.Run(what+", no goroutine", func(t *testing.T) { floodBesideRefused(t, newUnkept(t, Options{MaxKeys: 1000}), rule, 200) })
		t.Run(what+", nearly all refuse", func(t *testing.T) { floodBesideRefused(t, newUnkept(t, Options{MaxKeys: 1000}), rule, 1225) })
	}
}

// floodBesideRefused asks once for each of 20,000 keys beside some that refuse.
func floodBesideRefused(t *testing.T, table *Table, rule *limit.Rule, some int) {
	refusing, refused, now := names("refuses", some), 0, int64(table.clock.Now())
	for _, key := range refusing {
		admit(table, key, rule, 1, 11)
	}
	for i := range 20_000 {
		if ok, _ := table.Allow(fmt.Sprint(i), rule, 1, now); !ok {
			refused++
		}
	}
	if s := table.Stats(); refused > 0 || s.Overflow > 0 || s.Live > s.Room {
		t.Errorf("%d new keys were refused, %+v", refused, s)
	}
	for _, key := range refusing {
		if admit(table, key, rule, 1, 2) > 0 {
			t.Errorf("%q is free after the flood", key)
		}
	}
	for i := range table.index.shards {
		if sh := &table.index.shards[i]; len(sh.extra) > sh.live/10 {
			t.Errorf("%d of %d counters of a shard have no entry", len(sh.extra), sh.live)
		}
	}
	check(t, table)
}

// Counters without an entry make room for new keys as all others do.
func TestCountersWithoutAnEntryMakeRoom(t *testing.T) {
	table := newUnkept(t, Options{MaxKeys: 1, slack: 39, hash: oneHash})
	rule := slow(10)
	flood(table, rule, "first", 40)
	flood(table, rule, "new", 1000)
	if n := len(table.index.shard(42).extra); n != 40-2*rowSize {
		t.Fatalf("%d counters have no entry: the test shows nothing", n)
	}
	for _, key := range names("first", 40) {
		if table.lookUp(key, rule) != nil {
			t.Errorf("%q has stayed", key)
		}
	}
	check(t, table)
}

// Fault 95: if none may be forgotten, a flood does not look at all of them for each of its keys. As soon as
// some may be, they make room again.
func TestLooksForRoomAreBounded(t *testing.T) {
	const keys = 400
	table, _ := inFlightTable(t, keys, oneHash)
	rule, now := slow(10), int64(table.clock.Now())
	sh := table.index.shard(42)
	flood(table, rule, "first", 1)
	if sh.stuck != keys {
		t.Errorf("the first new key has looked at %d of %d", sh.stuck, keys)
	}
	const further = 100
	flood(table, rule, "further", further)
	if most := keys + further*evictLooks; sh.stuck > most {
		t.Errorf("%d further ones have looked at %d, at most %d are expected", further, sh.stuck-keys, most-keys)
	}
	for _, key := range names("in flight", 4) {
		table.lookUp(key, rule).Settle(now, report.Answer{Rule: rule, State: report.State{Level: arith.Of(rule).Cost(1)}, At: now, ServerNow: now})
	}
	overflow := table.Stats().Overflow
	flood(table, rule, "last", keys/evictLooks+1) // as many as it takes to look at all again
	if s := table.Stats(); s.Forgotten == 0 || s.Overflow-overflow > keys/evictLooks {
		t.Errorf("%+v", s)
	}
	check(t, table)
}
