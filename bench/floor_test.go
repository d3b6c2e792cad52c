package bench

import (
	"hash/maphash"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// floor is the least that a check can cost that finds its key in a map: hash the
// key, find its cell in a sharded map, read the clock, swap one word. Its maps are filled
// beforehand and only read, so that there is no lock; it can neither learn a
// key nor forget one, and shares nothing. It does decide, by GCRA.
type floor struct {
	seed   maphash.Seed
	clock  clock.Reader
	every  int64 // ns per unit
	burst  int64 // ns of units that fit
	shards [256]map[uint64]*cell
}

// cell holds the time, in ns, at which a key is empty again.
type cell struct {
	key  string
	tat  atomic.Int64
	next *cell // another key of this hash
}

func newFloor(keys []string, rule *limit.Rule, c clock.Clock) *floor {
	every := int64(rule.Period()) / rule.Units()
	f := &floor{seed: maphash.MakeSeed(), clock: clock.ReaderOf(c), every: every, burst: every * rule.Limit()}
	for i := range f.shards {
		f.shards[i] = make(map[uint64]*cell, len(keys)/len(f.shards)+1)
	}
	for _, k := range keys {
		h := maphash.String(f.seed, k)
		shard := f.shards[h>>56]
		shard[h] = &cell{key: k, next: shard[h]}
	}
	return f
}

// find returns the cell of a key, nil if it has none.
func (f *floor) find(key string) *cell {
	h := maphash.String(f.seed, key)
	c := f.shards[h>>56][h]
	for c != nil && c.key != key {
		c = c.next
	}
	return c
}

func (f *floor) allow(key string) bool {
	c := f.find(key)
	return c != nil && f.admit(c)
}

func (f *floor) admit(c *cell) bool {
	now := int64(f.clock.Now())
	for {
		old := c.tat.Load()
		tat := max(old, now) + f.every
		if tat-now > f.burst {
			return false
		}
		if c.tat.CompareAndSwap(old, tat) {
			return true
		}
	}
}

func (f *floor) peek(key string) bool {
	c := f.find(key)
	if c == nil {
		return false
	}
	now := int64(f.clock.Now())
	return max(c.tat.Load(), now)+f.every-now <= f.burst
}

func floorBy(c clock.Clock) opener {
	return func(_ testing.TB, keys []string, rule *limit.Rule) asks {
		f := newFloor(keys, rule, c)
		return asks{allow: f.allow, peek: f.peek}
	}
}

// openFloorBound has the cells at hand: what is left is the clock and the swap. No
// handle of a key can be cheaper that decides by a clock and may be asked by several.
func openFloorBound(_ testing.TB, keys []string, rule *limit.Rule) asks {
	f := newFloor(keys, rule, nil)
	var cells []*cell
	for _, k := range keys {
		cells = append(cells, f.find(k))
	}
	return asks{allow: f.allow, bound: boundTo(cells, f.admit)}
}

func openFloorCoarse(tb testing.TB, keys []string, rule *limit.Rule) asks {
	return floorBy(coarseClock(tb))(tb, keys, rule)
}
