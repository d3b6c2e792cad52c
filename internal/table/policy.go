package table

import (
	"math/bits"
	"slices"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/internal/counter"
)

// policy decides by frequency of use which counters should stay when there are more than MaxKeys.
// It is a ristretto cache with counters as values. The sweep offers counters to it in the
// background, so no check waits for it.
type policy = ristretto.Cache[uint64, *counter.Counter]

const (
	// sweepEvery is the time between two sweeps. Each looks at one in sweepAll entries. So a
	// counter in the state of a new one stays for a minute or two, because to create it again is
	// the slowest check. For each counter created since the last sweep, the sweep looks at more
	// entries: the more the fuller the table is, up to sweepFull. So keys that are used once do not
	// fill the table.
	sweepEvery = time.Second
	sweepAll   = 60
	sweepFull  = 4
	// crowdedEvery is the shortest time between two calls of [Options].Crowded.
	crowdedEvery = 5 * time.Minute
	// sweepHold bounds how many entries the sweep looks at while it holds a lock.
	sweepHold = 256
	// sketchSmall and sketchLarge are for how many keys the policy tracks the frequency per key
	// kept. Up to sketchKeys keys it is sketchSmall, some 45 bytes for each kept key. Above that it
	// is sketchLarge, 6 to 12 bytes.
	sketchSmall, sketchLarge = 10, 2
	sketchKeys               = 1 << 17
)

func (t *Table) newPolicy(maxKeys int64) (*policy, error) {
	track := sketchSmall * maxKeys
	if maxKeys > sketchKeys {
		// ristretto rounds the number up to a power of two. For many keys that would take much
		// memory, so it is rounded down here.
		track = max(int64(1)<<(bits.Len64(uint64(sketchLarge*maxKeys))-1), sketchSmall*sketchKeys)
	}
	return ristretto.NewCache(&ristretto.Config[uint64, *counter.Counter]{
		NumCounters:        track,
		MaxCost:            maxKeys,
		BufferItems:        64,
		IgnoreInternalCost: true,
		KeyToHash:          func(h uint64) (uint64, uint64) { return h, 0 },
		OnEvict:            t.onEvict,
		OnReject:           release,
	})
}

// onEvict is called, on ristretto's goroutine, for a counter that the policy drops in favour of
// another. The counter stays in the index until a new key needs the room.
func (t *Table) onEvict(item *ristretto.Item[*counter.Counter]) {
	if t.closing.Load() {
		return // closing evicts everything
	}
	t.stats.evictions.Add(1)
	release(item)
}

// release marks a counter as not held by the policy: it was dropped or rejected.
func release(item *ristretto.Item[*counter.Counter]) {
	if c := item.Value; c != nil {
		c.Release()
	}
}

// keep sweeps, and follows the wall clock, until the table is closed. No decision waits for it. It must
// not run for long at a time, because of machines with one processor.
func (t *Table) keep() {
	defer close(t.kept)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	var s sweeper
	var crowd crowd
	for {
		select {
		case <-tick.C:
			t.followWall()
			t.sweep(&s, t.isOpen)
			t.sweepTraces(&s, t.isOpen)
			if t.crowded != nil && crowd.news(t.Stats(), int64(t.clock.Now())) {
				t.crowded(t.Stats())
			}
		case <-t.stop:
			return
		}
	}
}

// crowd is what [Options].Crowded was last called for.
type crowd struct {
	at, lost int64
	called   bool
}

// news reports whether to call it.
func (c *crowd) news(s Stats, now int64) bool {
	lost := s.Displaced + s.Unreported
	if lost == c.lost && s.Remembered < s.RememberedRoom/2 || c.called && now < c.at+int64(crowdedEvery) {
		return false
	}
	*c = crowd{now, lost, true}
	return true
}

// followWall passes on by how much the wall clock is ahead of the clock of the checks.
func (t *Table) followWall() {
	ahead := int64(clocks.Ahead(t.clock))
	t.group.SetWall(ahead)
	if t.group.Link != nil {
		t.group.Link.SetWall(ahead)
	}
}

// sweeper is the state of the sweep.
type sweeper struct {
	shard   int
	traces  int // shard whose traces are next
	created int64
	budget  int // entries to look at; negative: this many too many were looked at
	used    []*counter.Counter
	dropped []*counter.Counter
}

// sweep looks at a part of all counters. It offers to the policy those that were used since it last
// looked, and drops those that are in the state of a new one. It ends when goOn returns false.
func (t *Table) sweep(s *sweeper, goOn func() bool) {
	created, entries := t.stats.created.Load(), 0
	for i := range t.index.shards {
		entries += len(t.index.shards[i].rows.Load().entries)
	}
	s.budget += int((created-s.created)*sweepFull*t.stats.live.Load()/t.room) + (entries+sweepAll-1)/sweepAll
	s.created = created
	for n := 0; n < len(t.index.shards) && s.budget > 0 && goOn(); {
		if more := t.sweepPart(&t.index.shards[s.shard], s, int64(t.clock.Now())); !more {
			s.shard = (s.shard + 1) % len(t.index.shards)
			n++
		}
		t.tell(s)
	}
	s.budget = min(s.budget, 0) // all were looked at
}

// sweepTraces forgets, in one of sweepAll parts of the shards, the remembered keys that count no more.
func (t *Table) sweepTraces(s *sweeper, goOn func() bool) {
	n := len(t.index.shards)
	for range (n + sweepAll - 1) / sweepAll {
		sh := &t.index.shards[s.traces]
		for more := true; more; {
			if !goOn() {
				return
			}
			sh.mu.Lock()
			more = t.memory.sweep(sh.traces, sweepHold/setSize, int64(t.clock.Now()))
			sh.mu.Unlock()
		}
		s.traces = (s.traces + 1) % n
	}
}

func (t *Table) isOpen() bool {
	select {
	case <-t.stop:
		return false
	default:
		return true
	}
}

// sweepPart looks at a part of a shard, and reports whether there is more of it.
func (t *Table) sweepPart(sh *shard, s *sweeper, now int64) (more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := sh.rows.Load()
	end := min(sh.swept+sweepHold, len(r.entries))
	s.budget -= end - sh.swept
	for ; sh.swept < end; sh.swept++ {
		if c := r.entries[sh.swept].Counter(); c != nil {
			t.sweepLocked(sh, s, c, now)
		}
	}
	if end < len(r.entries) {
		return true
	}
	sh.swept = 0
	s.budget -= len(sh.extra)
	for _, x := range slices.Backward(sh.extra) { // the last first, because it may be removed
		t.sweepLocked(sh, s, x.c, now)
	}
	s.dropped, sh.gone = append(s.dropped, sh.gone...), nil
	return false
}

func (t *Table) sweepLocked(sh *shard, s *sweeper, c *counter.Counter, now int64) {
	if c.Offer() {
		s.used = append(s.used, c)
	} else {
		t.forgetLocked(sh, c, counter.Idle, now)
	}
}

// tell passes on to the policy what the sweep has found.
func (t *Table) tell(s *sweeper) {
	for i, c := range s.used {
		s.used[i] = nil
		if is, _ := t.policy.Get(c.Hash()); is == c {
			continue
		}
		if !t.policy.Set(c.Hash(), c, 1) {
			t.stats.dropped.Add(1)
			c.Release()
		}
	}
	for i, c := range s.dropped {
		s.dropped[i] = nil
		if is, _ := t.policy.Get(c.Hash()); is == c { // otherwise the key has a new counter
			t.policy.Del(c.Hash())
		}
	}
	s.used, s.dropped = s.used[:0], s.dropped[:0]
}

// Close stops the table's goroutines. Its counters are kept: later checks find them, and create
// others if there is room. From then on counters are dropped only to make room. Further calls do
// nothing.
func (t *Table) Close() {
	t.closeOnce.Do(func() {
		close(t.stop)
		<-t.kept
		t.closing.Store(true)
		t.policy.Close()
	})
}
