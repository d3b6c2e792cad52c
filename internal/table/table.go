package table

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/keyhash"
	"github.com/hybridlimit/hybridlimit/internal/rulenames"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Table decides checks of keys. Build it with [New]; the zero Table is not usable.
// All methods are safe for concurrent use.
//
// Most checks find the entry of their key in the index and swap its word: they take no lock and
// allocate nothing. Other checks take the lock of the counter. A new key takes the lock of a shard
// of the index and costs two allocations or more.
//
// Rules must be valid and n must not be negative. Times must be readings of the clock in
// [Options].Clock.
//
// Locks are taken in this order: shard, counter. The policy is called under neither.
type Table struct {
	clock clock.Clock
	seeds keyhash.Hasher
	hash  func(key string, rule *limit.Rule) uint64 // nil except in tests

	index   index
	group   counter.Group
	room    int64 // largest number of counters
	maxDebt time.Duration
	policy  *policy
	memory  *memory
	crowded func(Stats)

	closing   atomic.Bool
	closeOnce sync.Once
	stop      chan struct{} // closed: keep must end
	kept      chan struct{} // closed: keep has ended

	names rulenames.Names // names of rules in use
	stats tableCounts
}

// New returns an empty table. Close it to stop its goroutines.
func New(o Options) (*Table, error) {
	if o.MaxKeys < 0 || o.MaxKeys > MaxMaxKeys {
		return nil, fmt.Errorf("local: MaxKeys %d: must be 0 to %d", o.MaxKeys, MaxMaxKeys)
	}
	if o.MaxRemembered < 0 || o.MaxRemembered > MaxMaxRemembered {
		return nil, fmt.Errorf("local: MaxRemembered %d: must be 0 to %d", o.MaxRemembered, MaxMaxRemembered)
	}
	o = o.withDefaults()
	t := &Table{
		clock: o.Clock, seeds: keyhash.New(), hash: o.hash,
		room: int64(o.MaxKeys + o.slack), maxDebt: o.MaxDebt,
		crowded: o.Crowded, stop: make(chan struct{}), kept: make(chan struct{}),
	}
	t.index.init(int(t.room))
	t.memory = newMemory(t.index.initTraces(o.MaxRemembered))
	t.group.Link, t.group.Tallies = o.Link, o.Tallies
	t.names.OnConflict, t.names.OnRebuilt = o.Conflict, o.Rebuilt
	var err error
	if t.policy, err = t.newPolicy(int64(o.MaxKeys)); err != nil {
		return nil, err
	}
	t.followWall()
	go t.keep()
	return t, nil
}

// query is the key that a call is about, with its hash and its fingerprint, at the time now.
type query struct {
	key      string
	rule     *limit.Rule
	h, print uint64
	now      int64
}

func (t *Table) query(key string, rule *limit.Rule, now int64) query {
	h, print := t.hashOf(key, rule)
	return query{key, rule, h, print, now}
}

// hashOf returns the hash and the fingerprint of a key under a rule.
func (t *Table) hashOf(key string, rule *limit.Rule) (h, print uint64) {
	h, print = t.seeds.Of(key, arith.Of(rule).Hash)
	if t.hash != nil {
		h = t.hash(key, rule)
	}
	return h, print
}

// AllowBy decides for n units of key at the time of a clock, and returns the source of the decision.
// It reads the clock after it has begun to fetch the entry of the key, because the two can overlap.
// counted reports whether the decision is one that a lease has admitted, see [Options].Tallies.
func (t *Table) AllowBy(clock clock.Clock, key string, rule *limit.Rule, n int64) (allowed bool, src limit.Source, counted bool) {
	h, print := t.hashOf(key, rule)
	e := t.index.locate(h)
	now := int64(clock.Now())
	if e != nil && n > 0 {
		if _, src, v := e.Take(print, rule, n, now); v != counter.Unanswered {
			return v == counter.Admitted, src, v == counter.Admitted
		}
	}
	return t.allowSlowly(query{key, rule, h, print, now}, n, e)
}

// allowSlowly is AllowBy after the entry tried, which may be nil, has not answered.
func (t *Table) allowSlowly(q query, n int64, tried *counter.Entry) (allowed bool, src limit.Source, counted bool) {
	e := t.index.search(q.h, q.print)
	if e != nil && e != tried && n > 0 {
		if _, src, v := e.Take(q.print, q.rule, n, q.now); v != counter.Unanswered {
			return v == counter.Admitted, src, v == counter.Admitted
		}
	}
	t.withEntry(e, q, toTake(n), func(c *counter.Counter) (ok bool) {
		allowed, src, ok = c.Check(q.now, n, q.rule)
		return ok
	})
	return allowed, src, false
}

// counterOf returns the counter of an entry; nil if it has none or that of another key.
func counterOf(e *counter.Entry, key string, rule *limit.Rule) *counter.Counter {
	if e == nil {
		return nil
	}
	if c := e.Counter(); c != nil && c.Matches(key, rule) {
		return c
	}
	return nil
}

// Take is AllowBy with the whole answer.
func (t *Table) Take(clock clock.Clock, key string, rule *limit.Rule, n int64) (res limit.Result, counted bool) {
	h, print := t.hashOf(key, rule)
	e := t.index.locate(h)
	now := int64(clock.Now())
	if e != nil && n == 1 && hasWholeAnswer(rule) {
		if level, src, v := e.Take(print, rule, n, now); v == counter.Admitted {
			return wholeAnswer(rule, level, src), true
		}
	}
	return t.ask(query{key, rule, h, print, now}, n, toTake(n)), false
}

// Peek returns what Take of one unit would return, and consumes nothing. It creates no counter.
func (t *Table) Peek(clock clock.Clock, key string, rule *limit.Rule) limit.Result {
	h, print := t.hashOf(key, rule)
	e := t.index.locate(h)
	now := int64(clock.Now())
	if e != nil && hasWholeAnswer(rule) {
		if level, src, v := e.Peek(print, rule, now); v == counter.Admitted {
			return wholeAnswer(rule, level, src)
		}
	}
	return t.ask(query{key, rule, h, print, now}, 1, never)
}

// hasWholeAnswer reports whether the word of an entry has the whole answer for a unit that is
// admitted. For a window only the counter knows how old its units are.
func hasWholeAnswer(rule *limit.Rule) bool { return arith.Of(rule).Ticks.PerNS != 0 }

func wholeAnswer(rule *limit.Rule, level int64, src limit.Source) limit.Result {
	res := decision.Ticks(arith.Of(rule), level)
	res.Source = src
	return res
}

// ask decides for n units, and takes them only if a counter may be created for them.
func (t *Table) ask(q query, n int64, create creation) (res limit.Result) {
	t.withEntry(t.index.search(q.h, q.print), q, create, func(c *counter.Counter) (ok bool) {
		res, ok = c.Ask(q.now, n, q.rule, create == always)
		return ok
	})
	return res
}

// Whether a call about a key without a counter creates one.
type creation uint8

const (
	// never: the call is decided by a counter that is made up for it, and consumes nothing.
	never creation = iota
	// ifRemembered: if units of the key are remembered, because the call may change them. Otherwise as
	// never.
	ifRemembered
	always
	// inAnyCase: as always, but no other counter is dropped for it.
	inAnyCase
)

// toTake returns always for a call that takes n units, but never for 0.
func toTake(n int64) creation {
	if n > 0 {
		return always
	}
	return never
}

// with calls f with the counter of a key, and again with another if the first was dropped.
func (t *Table) with(key string, rule *limit.Rule, now int64, create creation, f func(*counter.Counter) (ok bool)) {
	q := t.query(key, rule, now)
	t.withEntry(t.index.search(q.h, q.print), q, create, f)
}

// withEntry is with for a key that the index has in e; nil: it has none. Counters are dropped only
// under the lock of their shard, so the one that is found under that lock answers.
func (t *Table) withEntry(e *counter.Entry, q query, create creation, f func(*counter.Counter) (ok bool)) {
	t.names.See(q.rule, q.now)
	if c := counterOf(e, q.key, q.rule); c != nil && f(c) {
		return
	}
	sh := t.index.shard(q.h)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c, spare := t.findLocked(sh, q, create)
	if f(c); spare {
		t.forgetLocked(sh, c, counter.Kept, q.now)
	}
}

// findLocked returns the counter of a key. If there is none it creates one or makes one up, with what
// is remembered of the key. spare reports that it was created without room: no other counter may go.
// Then it must be dropped again after the call, and is remembered.
func (t *Table) findLocked(sh *shard, q query, create creation) (c *counter.Counter, spare bool) {
	if c := sh.findLocked(q.h, q.print, q.key, q.rule); c != nil {
		if c.Entry() == nil {
			sh.comeInLocked(c, q.h, q.print, q.now)
		}
		return c, false
	}
	if create == never || create == ifRemembered && !sh.traces.has(q.print) {
		_, was, trace := t.memory.look(sh.traces, q.print, q.now)
		if c = counter.MakeUp(q.key, ruleAs(was, q.rule), &t.group, q.now); was != nil {
			c.Resume(q.now, trace)
		}
		return c, false
	}
	if spare = t.stats.live.Load() >= t.room && (create == inAnyCase || !t.makeRoomLocked(sh, q.now)); spare {
		t.stats.overflow.Add(1)
	}
	return t.createLocked(sh, q), spare
}

// ruleAs returns the rule by which a remembered key begins: the one by which it was counted, if that
// has other numbers. Then the first call goes on to the present one. was may be nil.
func ruleAs(was, rule *limit.Rule) *limit.Rule {
	if was == nil || idOf(was) == idOf(rule) {
		return rule
	}
	return was
}

// createLocked makes a counter, with what is remembered of its key, and enters it in the index. It
// revokes the leases of the key under rules of the same name and another algorithm. Then the next check
// under such a rule goes through package rulenames, which detects the conflict.
func (t *Table) createLocked(sh *shard, q query) *counter.Counter {
	for _, other := range t.names.Others(q.rule) {
		h, print := t.hashOf(q.key, other) // only a counter with an entry has a lease
		if c := counterOf(t.index.search(h, print), q.key, other); c != nil {
			c.Revoke(q.now)
		}
	}
	was, trace := t.memory.recall(sh.traces, q.print, q.now)
	c := counter.New(q.key, ruleAs(was, q.rule), q.h, &t.group, q.now)
	if was != nil {
		c.Resume(q.now, trace)
	}
	sh.live++
	if n := sh.rowsLocked(); n > len(sh.rows.Load().tags) {
		sh.growLocked(n, q.now)
	}
	sh.putLocked(c, q.h, q.print)
	t.stats.live.Add(1)
	t.stats.created.Add(1)
	return c
}

// Range calls f for every live counter until f returns false. Counters that are created or dropped
// meanwhile may be left out.
func (t *Table) Range(f func(*counter.Counter) bool) {
	var list []*counter.Counter
	for i := range t.index.shards {
		list = t.index.shards[i].all(list[:0])
		for _, c := range list {
			if !f(c) {
				return
			}
		}
	}
}

// Sample is Range of at most as many counters, beginning at a random place.
func (t *Table) Sample(most int, f func(*counter.Counter)) {
	var list []*counter.Counter
	for i, start := 0, rand.IntN(len(t.index.shards)); i < len(t.index.shards); i++ {
		list = t.index.shards[(start+i)%len(t.index.shards)].all(list[:0])
		for _, c := range list[:min(len(list), most)] {
			f(c)
		}
		if most -= len(list); most <= 0 {
			return
		}
	}
}

// Rules returns the rules in use, of each name one.
func (t *Table) Rules() []*limit.Rule { return t.names.Current() }

// Find returns the counter of a key under a rule; nil if there is none.
func (t *Table) Find(key string, rule *limit.Rule) *counter.Counter {
	h, print := t.hashOf(key, rule)
	if c := counterOf(t.index.search(h, print), key, rule); c != nil {
		return c
	}
	sh := t.index.shard(h)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.findLocked(h, print, key, rule) // it may have no entry
}

// Survey counts what leases have admitted so far, see [Options].Tallies, and returns the states of
// the counters. It locks every counter, one by one.
func (t *Table) Survey(now int64) (s counter.Survey) {
	t.Range(func(c *counter.Counter) bool {
		c.Survey(now, &s)
		return true
	})
	return s
}

// Stats returns the figures of the table. It takes no lock.
func (t *Table) Stats() Stats {
	s := &t.stats
	unreported := int64(0)
	if t.group.Link != nil {
		unreported = t.group.Link.Unreported.Load()
	}
	return Stats{
		Unreported: unreported,
		Live:       s.live.Load(), Room: t.room,
		Created: s.created.Load(), Expired: s.expired.Load(), Forgotten: s.forgotten.Load(),
		Evictions: s.evictions.Load(), DroppedSets: s.dropped.Load(),
		Overflow: s.overflow.Load(), Conflicts: t.names.Conflicts(), Rebuilt: t.names.Rebuilt(),
		Remembered: t.memory.live.Load(), RememberedRoom: t.memory.room,
		Recalled: t.memory.recalled.Load(), Displaced: t.memory.displaced.Load(),
	}
}
