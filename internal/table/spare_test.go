package table

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// inFlightTable returns a table without room, in which no counter may go: the reports of all are under
// way.
func inFlightTable(t *testing.T, keys int, hash func(string, *limit.Rule) uint64) (*Table, *counter.Link) {
	t.Helper()
	link := newTestLink()
	table := newUnkept(t, Options{MaxKeys: 1, MaxRemembered: 1 << 16, slack: keys - 1, Link: link, hash: hash})
	flood(table, slow(10), "in flight", keys)
	now := int64(table.clock.Now())
	link.Drain(func(c *counter.Counter, urgent bool) { collect(c, now, queueOf(urgent)) })
	return table, link
}

// A key for which there is no room has its whole limit, and no more. It is remembered from call to
// call. Its units are not reported, and are counted.
//
// Fault 39: no counter may go, because the reports of all are under way.
func TestKeysWithoutRoom(t *testing.T) {
	const keys, room = 50, 40
	for _, rule := range []*limit.Rule{slow(10), windowRule(t, 10, time.Hour, 10), limit.Must(limit.FixedWindow("fixed", 10, time.Hour))} {
		table, link := inFlightTable(t, room, oneHash)
		now := int64(table.clock.Now())
		for i := range keys {
			key := fmt.Sprint("new ", i)
			if got := admit(table, key, rule, 1, 8); got != 8 {
				t.Fatalf("%v: %q: admitted %d of 8", rule, key, got)
			}
			if back := table.Refund(key, rule, 3, now); back != 3 {
				t.Errorf("%v: %q: %d of 3 units came back", rule, key, back)
			}
			if got, _ := table.TakeAtMost(key, rule, 9, now); got != 5 {
				t.Errorf("%v: %q: granted %d, 5 are left", rule, key, got)
			}
			if res := table.Peek(table.clock, key, rule); res.Allowed || res.RetryAfter <= 0 {
				t.Errorf("%v: %q: %+v", rule, key, res)
			}
		}
		s := table.Stats()
		if s.Live != room || s.Overflow == 0 || s.Remembered != keys {
			t.Errorf("%v: %+v", rule, s)
		}
		if lost := link.Unreported.Load(); lost < 10*keys {
			t.Errorf("%v: %d units were lost and counted, want at least %d", rule, lost, 10*keys)
		}
		link.SetMode(counter.MultiplierClosed, true)
		if res := table.takeAt("another", rule, 1, now); res.Allowed || res.Source != limit.SourceDegraded {
			t.Errorf("%v: failing closed: %+v", rule, res)
		}
		check(t, table)
	}
}

// What is remembered counts in an outage as it did before it.
func TestKeysWithoutRoomInAnOutage(t *testing.T) {
	r := windowRule(t, 12, time.Hour, 10)
	table, link := inFlightTable(t, 40, oneHash)
	now := int64(table.clock.Now())
	for i, step := range []struct {
		n, multiplier int64
		admitted      bool
	}{{5, 1, true}, {1, 3, true}, {1, 3, true}, {2, 3, false}, {1, 1, true}, {1, 1, false}} {
		link.SetMode(step.multiplier, step.multiplier > 1)
		if ok, _ := table.Allow("new", r, step.n, now); ok != step.admitted {
			t.Errorf("step %d: admitted: %v", i, ok)
		}
	}
}

// Several keys without room are decided together.
func TestTakeAllWithoutRoom(t *testing.T) {
	shards := func(key string, _ *limit.Rule) uint64 { // two, by the last letter
		return uint64(key[len(key)-1]%2)<<63 | 1<<40
	}
	table, _ := inFlightTable(t, 600, shards)
	r := windowRule(t, 300, time.Hour, 1)
	var all sync.WaitGroup
	var admitted atomic.Int64
	for g := range 4 {
		all.Go(func() {
			checks := []limit.Check{askFor("new 1", r, 1), askFor("new 2", r, 1)}
			if g%2 == 1 {
				checks[0], checks[1] = checks[1], checks[0]
			}
			for range 300 {
				if v := table.TakeAll(checks, start.UnixNano(), make([]limit.Result, 2)); v.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if s := table.Stats(); s.Overflow == 0 || s.Live != s.Room {
		t.Errorf("%+v", s)
	}
	if got := admitted.Load(); got != 300 {
		t.Errorf("admitted %d of 300", got)
	}
	check(t, table)
}

func askFor(key string, r *limit.Rule, n int64) limit.Check {
	return limit.Check{Key: key, Rule: r, N: n}
}

// A counter with something that a trace does not hold stays, unless such counters take more than half of
// the room: here reservations that wait. Where a quarter is kept, an eviction takes one by chance in 4⁸, so
// with random hashes one run in 40 loses some.
//
// Fault 106: reservations.
func TestKeptCountersTakeHalfOfTheRoom(t *testing.T) {
	const room, keys = 400, 2000
	rule := limit.Must(limit.TokenBucket("bucket", 1, time.Hour, 1))
	for _, kept := range []int{room / 4, room} {
		table := newUnkept(t, Options{MaxKeys: 1, MaxRemembered: 1 << 16, slack: room - 1, hash: fixedHash})
		now := int64(table.clock.Now())
		for _, key := range names("waits", kept) {
			table.Allow(key, rule, 1, now)
			if _, b := table.Reserve(key, rule, 1, now, counter.Terms{MaxDelay: int64(2 * time.Hour)}); b == nil {
				t.Fatal("not reserved")
			}
			c := table.lookUp(key, rule) // it does not look used any more
			c.Offer()
			c.Release()
		}
		flood(table, rule, "new", keys)
		left := 0
		for _, key := range names("waits", kept) {
			if table.lookUp(key, rule) != nil {
				left++
			} else if res := table.Peek(table.clock, key, rule); res.Allowed || res.RetryAfter <= time.Hour {
				t.Errorf("%q was forgotten: %+v", key, res)
			}
		}
		s := table.Stats()
		if s.Live > room || s.Overflow != 0 || kept < room/2 && left != kept || kept == room && (left > room*9/10 || left < room/2) {
			t.Errorf("%d of %d counters with reservations stay, %+v", left, kept, s)
		}
		check(t, table)
	}
}

// A refund or a settlement of a key that has left changes what is remembered of it, as a reset does.
// Reading it changes nothing.
//
// Fault 106: calls about a key that has left.
func TestCallsChangeWhatIsRemembered(t *testing.T) {
	for _, rule := range []*limit.Rule{slow(10), windowRule(t, 10, time.Hour, 10), windowRule(t, 10, time.Hour, 100),
		limit.Must(limit.FixedWindow("fixed", 10, time.Hour)), limit.Must(limit.SlidingLog("log", 10, time.Hour))} {
		table := newUnkept(t, Options{MaxKeys: 1, MaxRemembered: 1 << 12, slack: 3, hash: oneHash})
		now := int64(table.clock.Now())
		leave := func() {
			t.Helper()
			if c := table.lookUp("k", rule); c != nil {
				c.Offer() // it does not look used any more
				c.Release()
			}
			if flood(table, rule, fmt.Sprint(table.Stats().Created), 20); table.lookUp("k", rule) != nil {
				t.Fatalf("%v: the key has not left: %v, retention %d", rule, table.lookUp("k", rule).IsBusy(), table.lookUp("k", rule).Retention(now))
			}
		}
		left := func(want int64) {
			t.Helper()
			for range 2 {
				if res := table.Peek(table.clock, "k", rule); res.Remaining != want || res.Allowed != (want > 0) {
					t.Errorf("%v: %+v, want %d left", rule, res, want)
				}
			}
			leave()
		}
		table.Allow("k", rule, 7, now)
		leave()
		left(3)
		if back := table.Refund("k", rule, 2, now); back != 2 {
			t.Errorf("%v: %d came back", rule, back)
		}
		left(5)
		if charged, _ := table.Charge("k", rule, 4, now); charged != 4 {
			t.Errorf("%v: %d charged", rule, charged)
		}
		left(1)
		table.Set("k", rule, 6, now)
		left(4)
		if table.Allow("k", rule, 5, now); table.lookUp("k", rule) == nil {
			t.Error("no counter")
		}
		left(4)
		table.Set("k", rule, 0, now)
		left(10)
		res, booked := table.Reserve("k", rule, 10, now, counter.Terms{})
		if left(0); !res.Allowed || booked == nil {
			t.Fatalf("%v: not reserved", rule)
		}
		if back := table.Cancel("k", rule, now, booked); back != 10 {
			t.Errorf("%v: %d of a reservation came back", rule, back)
		}
		left(10)
	}
}

// A key goes on under another rule of its name with the units that are remembered, not with their share.
//
// Fault 106: plans.
func TestAnotherRuleOfARememberedKey(t *testing.T) {
	few, many := windowRule(t, 20, time.Hour, 10), windowRule(t, 200, time.Hour, 10)
	slower := windowRule(t, 20, 2*time.Hour, 10)
	table := newUnkept(t, Options{MaxKeys: 1, MaxRemembered: 1 << 12, slack: 3, hash: oneHash})
	now := int64(table.clock.Now())
	leave := func() { flood(table, few, fmt.Sprint(table.Stats().Created), 20) }
	table.Allow("k", few, 20, now)
	leave()
	if ok, _ := table.Allow("k", many, 180, now); !ok {
		t.Error("20 of 200 are used, and 180 do not fit")
	}
	leave()
	if ok, _ := table.Allow("k", many, 1, now); ok {
		t.Error("200 of 200 are used, and one more fits")
	}
	leave()
	if ok, _ := table.Allow("k", slower, 1, now+int64(time.Hour/2)); ok {
		t.Error("the slower rule has forgotten the units")
	}
}

// Redis' first answer replaces what was remembered. It is no sign of lost data, whatever it says.
//
// Fault 106: an answer of Redis.
func TestAnAnswerReplacesWhatWasRemembered(t *testing.T) {
	for _, rule := range []*limit.Rule{slow(10), windowRule(t, 10, time.Hour, 10)} {
		for _, known := range []int64{0, 3, 9} {
			link := newTestLink()
			table := newUnkept(t, Options{MaxKeys: 1, MaxRemembered: 1 << 12, slack: 3, hash: oneHash, Link: link})
			link.Part(1).SetOffset(0, 1000)
			now := int64(table.clock.Now())
			settled := func(units int64) {
				link.Drain(func(c *counter.Counter, urgent bool) {
					if rep, ok := collect(c, now, queueOf(urgent)); ok {
						state := report.State{Level: arith.Of(rule).Cost(units)}
						if arith.Of(rule).Kept > 0 {
							state.Buckets = []report.Bucket{{ID: arith.Of(rule).Index(now), Units: units}}
						}
						if out := c.Settle(now, report.Answer{Rule: rep.Rule, State: state, At: now, ServerNow: now, Slack: 1}); out.Lost {
							t.Errorf("%v: %q: lost data", rule, c.Key())
						}
					}
				})
			}
			table.Allow("k", rule, 6, now)
			settled(6)
			flood(table, rule, "new", 20)
			if table.lookUp("k", rule) != nil {
				t.Fatal("the key has not left")
			}
			if res := table.takeAt("k", rule, 1, now); res.Remaining != 3 || res.Source != limit.SourceUnsynced {
				t.Errorf("%v: before the answer: %+v", rule, res)
			}
			settled(known + 1)
			if res := table.Peek(table.clock, "k", rule); res.Remaining != 9-known {
				t.Errorf("%v: Redis knows %d: %+v", rule, known+1, res)
			}
		}
	}
}
