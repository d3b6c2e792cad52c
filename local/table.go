package local

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Table finds or creates the counter of a key. Build it with [NewTable]; the
// zero Table is not usable. All methods are safe for concurrent use.
//
// A check of a busy key is answered from a slot, without a lock. One of another key that
// was used lately costs one hash, a look into recents and the counter's own lock, and
// allocates nothing; of another that the cache holds,
// one Get on top. A new key costs a lock shared with one in 256 other keys, and
// two allocations or so, of a window with many buckets four; that of a window has one more
// when it is asked again, see fold.go.
//
// The caller sees to it that rules are valid and n is not negative, and passes
// readings of the clock that the table was given.
//
// Locks are taken in this order: side shard, cache shard (inside ristretto),
// counter, and then those of what a counter lends: the tenancy of its slot, the group
// of its pocket, the table of terms. Who counts what slots have admitted, or makes them
// more, holds lodge.growing before counters. The cache is never written to (Set, Wait)
// under one of them.
type Table struct {
	clock clock.Clock
	link  *Link
	seeds hasher
	hash  func(key string, rule *limit.Rule) uint64 // nil but in tests

	lodge     lodge
	recent    atomic.Pointer[recents]
	epoch     atomic.Uint32 // wraps
	epochKeys int64         // new keys in each
	// view is what checks read the cache through. Closing takes it away and
	// then waits until nobody holds it, see Close.
	view atomic.Pointer[view]
	// evicting is odd while the cache may have taken a counter out and not
	// yet given it to onEvict. Written by the cache's goroutine alone.
	evicting atomic.Uint64

	side [sideShards]sideShard
	room int // newcomers per side shard

	writeMu sync.RWMutex // held for reading to write to the cache or walk it; Close holds it for writing
	cache   *ristretto.Cache[uint64, *Counter]
	fresh   chan *Counter // recently offered to the cache; see keep
	crowded chan struct{} // recents or slots should grow; see keep
	crowd   sync.Mutex    // held by who locks counters that have no order, see TakeAll
	// replacing is the counter that may take the place of a dead one.
	replacing atomic.Pointer[Counter]

	closing   atomic.Bool // the cache is being torn down: its callbacks mean nothing
	closeOnce sync.Once
	stop      chan struct{} // closed: end keep
	kept      chan struct{} // closed: keep has ended

	names ruleNames // in use
	stats tableCounts
}

// view is a way to read the cache. It exists apart from the table so that the
// garbage collector can tell when the last reader has let go of it.
type view struct {
	cache *ristretto.Cache[uint64, *Counter]
}

// NewTable returns an empty table. Close it to stop its goroutines.
func NewTable(o TableOptions) (*Table, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	t := &Table{
		clock: o.Clock, link: o.Link, seeds: newHasher(), hash: o.hash,
		room:  max((o.sideKeys+sideShards-1)/sideShards, 1),
		fresh: make(chan *Counter, freshBacklog), crowded: make(chan struct{}, 1),
		epochKeys: int64(max(o.MaxKeys/epochParts, epochLeast)),
		stop:      make(chan struct{}),
		kept:      make(chan struct{}),
	}
	t.recent.Store(newRecents(recentFirst))
	t.lodge.init(o.Link, o.MaxKeys)
	t.lodge.table = t
	t.names.told = o.Conflict
	for i := range t.side {
		t.side[i].counters = make(map[ident]*Counter)
	}
	var err error
	if t.cache, err = t.newCache(int64(o.MaxKeys)); err != nil {
		return nil, err
	}
	t.view.Store(&view{cache: t.cache})
	go t.keep()
	return t, nil
}

// hashOf returns the cache key of a key under a rule. The seed keeps an
// attacker from choosing keys that collide.
func (t *Table) hashOf(key string, rule *limit.Rule) uint64 {
	if t.hash != nil {
		return t.hash(key, rule)
	}
	return t.seeds.of(key, rule.Hash()) // see AllowBy
}

// get returns the counter in the cache's slot h, whoever's it is, or nil. A
// nil view (a closed table) holds nothing.
func (v *view) get(h uint64) *Counter {
	if v == nil {
		return nil
	}
	c, _ := v.cache.Get(h)
	return c
}

// holds reports whether the cache holds c. Unlike get it counts as a use of
// the slot only if there is something in it, so that upkeep does not make
// every junk key look popular.
func (v *view) holds(c *Counter) bool {
	if v == nil {
		return false
	}
	if _, ok := v.cache.GetTTL(c.hash); !ok {
		return false
	}
	return v.get(c.hash) == c
}

// Spot is where a key was found, see [Table.Seek].
type Spot struct {
	hash uint64
	slot *slot    // that answers for it, maybe; nil: none does
	c    *Counter // nil: not looked for, or not among the recent ones
}

// Seek looks a key up, for [Table.TakeFromSlot] and [Table.TakeAt] with the same key and
// rule. It is apart from these so that the clock can be read in between: read first, it
// made a check of a key in the processor's cache 13 ns dearer, and none cheaper.
func (t *Table) Seek(key string, rule *limit.Rule) Spot {
	h := t.hashOf(key, rule)
	if s := t.lodge.find(h); s != nil {
		t.lodge.fetchMiddle(s, key)
		return Spot{hash: h, slot: s}
	}
	return Spot{hash: h, c: t.recently(h, key, rule)}
}

// recently returns the counter of a key if it is a recent one, or nil.
func (t *Table) recently(h uint64, key string, rule *limit.Rule) *Counter {
	c := t.recent.Load().get(h)
	if c == nil {
		return nil
	}
	if c.denied.Load() == 0 { // else that may be all there is to know
		fetchToWrite(unsafe.Pointer(&c.mu))
		fetchToWrite(unsafe.Pointer(&c.freshAt))
	}
	if !c.matches(key, rule) {
		return nil
	}
	return c
}

// Allow decides for n units of key at now (nanoseconds), and tells on what
// knowledge.
func (t *Table) Allow(key string, rule *limit.Rule, n, now int64) (bool, limit.Source) {
	allowed, src, _ := t.allowAt(t.Seek(key, rule), key, rule, n, now)
	return allowed, src
}

// AllowBy is Allow at the time that a clock shows. All that a check from a slot takes is
// called from here, because what calls take is a good part of the whole. Counted says
// that the decision is among those that [Table.Admitted] returns.
func (t *Table) AllowBy(clock clock.Clock, key string, rule *limit.Rule, n int64) (allowed bool, src limit.Source, counted bool) {
	if len(key) > inlineKey || n != 1 || t.hash != nil {
		at := t.Seek(key, rule)
		return t.allowAt(at, key, rule, n, int64(clock.Now()))
	}
	k := signOf(key)
	h := t.seeds.sign(k, rule.Hash()) // as hashOf has it
	s := t.lodge.find(h)
	if s == nil {
		c := t.recently(h, key, rule)
		allowed, src = t.allowFrom(c, h, key, rule, n, int64(clock.Now()))
		return allowed, src, false
	}
	now := int64(clock.Now())
	if allowed, src, ok := t.lodge.answer(s, k, rule, now); ok {
		return allowed, src, allowed
	}
	allowed, src = t.allowPast(s, h, key, rule, n, now)
	return allowed, src, false
}

// allowAt is Allow of a key that was looked up.
func (t *Table) allowAt(at Spot, key string, rule *limit.Rule, n, now int64) (allowed bool, src limit.Source, counted bool) {
	switch {
	case at.slot == nil:
		allowed, src = t.allowFrom(at.c, at.hash, key, rule, n, now)
		return allowed, src, false
	case n == 1:
		if allowed, src, ok := t.lodge.answerKey(at.slot, key, at.hash, rule, now); ok {
			return allowed, src, allowed
		}
	}
	allowed, src = t.allowPast(at.slot, at.hash, key, rule, n, now)
	return allowed, src, false
}

// Admitted returns how many units were admitted from slots and by handles so far, by source. It looks at
// every slot in use: 65,536 take 1 to 2 ms.
func (t *Table) Admitted() [Sources]int64 { return t.lodge.sums() }

// allowPast is Allow of a key for which s, which seemed to be its slot, does not answer.
func (t *Table) allowPast(s *slot, h uint64, key string, rule *limit.Rule, n, now int64) (bool, limit.Source) {
	if n == 1 && s.isVacant() {
		t.lodge.vacate(s)
	}
	return t.allowFrom(t.recently(h, key, rule), h, key, rule, n, now)
}

// allowFrom is Allow of a key with this hash from its counter, which is nil if it is not
// a recent one.
func (t *Table) allowFrom(c *Counter, h uint64, key string, rule *limit.Rule, n, now int64) (bool, limit.Source) {
	if c != nil {
		if src, no := c.denies(now, n, rule); no && !t.lodge.wants(c, n, now) {
			return false, src
		}
		t.names.see(rule)
		if allowed, src, how := c.check(now, n, rule, uint8(t.epoch.Load())); how != gone {
			t.follow(c, nil, rule, now, allowed, how)
			return allowed, src
		}
		t.recent.Load().drop(c)
	}
	return t.allowCached(h, key, rule, n, now)
}

// follow does what a check of c, by who has the pocket if there is one, has shown to be
// due.
func (t *Table) follow(c *Counter, p *pocket, rule *limit.Rule, now int64, allowed bool, how manner) {
	if how == remind {
		t.remind(c)
	}
	if how == steady || !allowed && c.denied.Load() != 0 {
		season := t.lodge.season.n.Load()
		t.lodge.lend(c, p, rule, season, uint8(t.epoch.Load()), now)
	}
}

// allowCached is Allow of a key that was not used lately.
func (t *Table) allowCached(h uint64, key string, rule *limit.Rule, n, now int64) (bool, limit.Source) {
	t.names.see(rule)
	v := t.view.Load()
	if c := t.fromCache(v, h, key, rule); c != nil {
		if allowed, src, how := c.check(now, n, rule, uint8(t.epoch.Load())); how != gone {
			runtime.KeepAlive(v) // until c is unlocked again, see Close
			return allowed, src
		}
	}
	f := t.find(h, key, rule, now, n > 0)
	allowed, src, _ := f.c.check(now, n, rule, uint8(t.epoch.Load()))
	t.leave(f)
	runtime.KeepAlive(v)
	return allowed, f.source(src)
}

// Take is Allow with the whole answer.
func (t *Table) Take(key string, rule *limit.Rule, n, now int64) limit.Result {
	at := t.Seek(key, rule)
	if res, ok := t.TakeFromSlot(at, key, rule, n, now); ok {
		return res
	}
	return t.TakeAt(at, key, rule, n, now)
}

// TakeAt is [Table.Take] of a key that was looked up, and that TakeFromSlot did not take.
func (t *Table) TakeAt(at Spot, key string, rule *limit.Rule, n, now int64) limit.Result {
	if at.slot != nil && n == 1 && at.slot.isVacant() {
		t.lodge.vacate(at.slot)
	}
	return t.ask(at, key, rule, n, now, true)
}

// TakeFromSlot is [Table.Take] of a key that was looked up, if a slot has the whole
// answer: then the decision is among those that [Table.Admitted] returns. Else nothing
// has happened.
func (t *Table) TakeFromSlot(at Spot, key string, rule *limit.Rule, n, now int64) (res limit.Result, ok bool) {
	if at.slot == nil || n != 1 || !takesFromSlots(rule) {
		return res, false
	}
	return t.lodge.takeKey(at.slot, key, at.hash, rule, now, true)
}

// Peek tells what Take would answer and consumes nothing. It does not create
// a counter for a key that has none.
func (t *Table) Peek(key string, rule *limit.Rule, n, now int64) limit.Result {
	at := t.Seek(key, rule)
	if at.slot != nil && n == 1 && takesFromSlots(rule) {
		if res, ok := t.lodge.takeKey(at.slot, key, at.hash, rule, now, false); ok {
			return res
		}
	}
	return t.ask(at, key, rule, n, now, false)
}

func (t *Table) ask(s Spot, key string, rule *limit.Rule, n, now int64, book bool) limit.Result {
	h := s.hash
	t.names.see(rule)
	if s.slot != nil {
		s.c = t.recently(h, key, rule)
	}
	if c := s.c; c != nil {
		if res, how := c.ask(now, n, rule, book, uint8(t.epoch.Load())); how != gone {
			if how != well {
				t.follow(c, nil, rule, now, true, how)
			}
			return res
		}
		t.recent.Load().drop(c)
	}
	v := t.view.Load()
	if c := t.fromCache(v, h, key, rule); c != nil {
		if res, how := c.ask(now, n, rule, book, uint8(t.epoch.Load())); how != gone {
			runtime.KeepAlive(v)
			return res
		}
	}
	f := t.find(h, key, rule, now, book && n > 0)
	res, _ := f.c.ask(now, n, rule, book, uint8(t.epoch.Load()))
	t.leave(f)
	runtime.KeepAlive(v)
	res.Source = f.source(res.Source)
	return res
}

// found is a counter to decide with while its shard is locked. Counters die
// only under their shard's lock, so this one is alive until leave.
type found struct {
	c        *Counter
	sh       *sideShard // locked
	offer    bool       // hand c to the cache on leaving
	stranger bool       // c was made up to answer a question about an unknown key
	link     *Link
}

// leave unlocks what find has locked, and tells the cache of a counter that it
// should hold.
func (t *Table) leave(f found) {
	f.sh.mu.Unlock()
	if f.offer {
		t.offer(f.c)
	}
}

// source corrects the source of a made-up counter, which has no link.
func (f *found) source(s limit.Source) limit.Source {
	switch {
	case !f.stranger || f.link == nil:
		return s
	case modeDegraded(f.link.unsorted.mode.Load()):
		return limit.SourceDegraded
	}
	return limit.SourceUnsynced
}

// find returns the counter of a key that the cache did not show, creating it
// if need be and wanted. The caller must call leave.
func (t *Table) find(h uint64, key string, rule *limit.Rule, now int64, create bool) found {
	sh := t.shard(h)
	id := ident{alg: rule.Algorithm(), name: rule.Name(), key: key}
	sh.mu.Lock()
	f := found{sh: sh, link: t.link}
	if c, aside := t.existingLocked(sh, h, id); c != nil {
		f.c, f.offer = c, aside && sh.retryLocked()
		t.recent.Load().put(c)
		return f
	}
	switch full := len(sh.counters) >= t.room; {
	case full && !t.makeRoomLocked(sh, worthPartial, now, create):
		f.c = t.overflowLocked(sh, rule, now)
		if create {
			t.stats.overflow.Add(1)
		}
	case create:
		f.c, f.offer = t.createLocked(sh, h, key, rule, now), true
		t.recent.Load().put(f.c)
	default:
		f.c, f.stranger = t.stranger(h, key, rule, now), true
	}
	return f
}

// existingLocked returns the live counter of a key, or nil if there is none,
// and whether it is in the side table. It may unlock sh for a while.
//
// A counter that is neither in the side table nor in the cache may be on its
// way from here to there: the cache has taken it out, and onEvict is waiting
// for sh. Creating another one now would hand the key a fresh level. So
// nobody is created unless no eviction was under way while we looked, or, if
// one was, nothing has arrived in the shard once it is over.
func (t *Table) existingLocked(sh *sideShard, h uint64, id ident) (c *Counter, aside bool) {
	for range limboTries {
		before, arrivals := t.evicting.Load(), sh.arrivals
		if c, aside := t.seenLocked(sh, h, id); c != nil {
			return c, aside
		}
		after := t.evicting.Load()
		if before == after && before%2 == 0 {
			return nil, false
		}
		sh.mu.Unlock()
		t.awaitEviction(after)
		sh.mu.Lock()
		if sh.arrivals == arrivals {
			return nil, false
		}
	}
	// Others keep coming into this one shard faster than we can look. Should
	// the key have a counter after all, onEvict will merge the two.
	t.stats.limbo.Add(1)
	return t.seenLocked(sh, h, id)
}

// awaitEviction returns when the eviction numbered seq is over. It is a matter
// of a microsecond, for which no lock is worth having; the bound covers a
// cache goroutine that has lost its processor for long.
func (t *Table) awaitEviction(seq uint64) {
	if seq%2 == 0 {
		return
	}
	for range limboSpins {
		if t.evicting.Load() != seq {
			return
		}
		runtime.Gosched()
	}
	t.stats.limbo.Add(1)
}

// seenLocked returns the live counter of a key if the side table or the cache
// has it, and whether it was the former.
func (t *Table) seenLocked(sh *sideShard, h uint64, id ident) (c *Counter, aside bool) {
	if c = sh.counters[id]; c != nil {
		return c, true
	}
	v := t.view.Load()
	c = v.get(h)
	runtime.KeepAlive(v) // its reader holds sh, which Close will ask for
	if c == nil || c.ident() != id || !t.reviveLocked(sh, c) {
		return nil, false
	}
	return c, false
}

// reviveLocked reports whether c, just found in the cache, is alive, bringing
// it back to life if it was forgotten: that happens when the side table ran
// full while the cache had still to take c in. What c remembers of its key is
// true, so it may as well go on, in the side table for now: the cache may be
// about to be closed. One with an heir is truly dead.
func (t *Table) reviveLocked(sh *sideShard, c *Counter) bool {
	c.mu.Lock() // not lock: what it has lent may stay where it is, and who is dead has lent nothing
	defer c.mu.Unlock()
	if !c.dead {
		return true
	}
	if c.heir() != nil {
		return false
	}
	c.dead = false
	c.unmark(quarantined | wounded)
	t.putLocked(sh, c)
	t.stats.live.Add(1)
	t.stats.revived.Add(1)
	return true
}

// createLocked makes a counter and puts it into the side table.
func (t *Table) createLocked(sh *sideShard, h uint64, key string, rule *limit.Rule, now int64) *Counter {
	for _, other := range t.names.others(rule) {
		t.unlend(key, other)
	}
	c := newCounter(key, rule, h, t.link, now)
	t.putLocked(sh, c)
	live, lacks := t.stats.live.Add(1), t.lodge.comesWithMiddle(key)
	if lacks || t.recent.Load().crowded(live) || t.lodge.crowded(live) {
		select {
		case t.crowded <- struct{}{}:
		default: // it has been told
		}
	}
	t.comes()
	return c
}

// stranger makes up the counter of a key that has none, for one question. It
// has no link, so that the reconciler does not hear of it, but weighs units as
// a new counter would.
func (t *Table) stranger(h uint64, key string, rule *limit.Rule, now int64) *Counter {
	c := newCounter(key, rule, h, nil, now)
	if t.link != nil {
		c.setMode(t.link.unsorted.mode.Load())
	}
	return c
}
