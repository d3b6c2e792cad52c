package bench

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"testing"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/clocks"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The floors are the least that a check can cost that finds its key: hash the key, find
// its cell, read the clock, swap one word. They are filled beforehand and only read, so
// that there is no lock and no need of shards; they can neither learn a key nor forget
// one, and share nothing. They do decide, by GCRA.

// gcra decides by the time at which a key is empty again, in ns.
type gcra struct {
	clock clock.Clock
	every int64 // ns per unit
	burst int64 // ns of units that fit
}

func newGCRA(rule *limit.Rule, c clock.Clock) gcra {
	every := int64(rule.Period()) / arith.Of(rule).Units
	return gcra{clock: clocks.Or(c), every: every, burst: every * rule.Limit()}
}

func (g *gcra) admit(tat *atomic.Int64) bool {
	now := int64(g.clock.Now())
	for {
		old := tat.Load()
		is := max(old, now) + g.every
		if is-now > g.burst {
			return false
		}
		if tat.CompareAndSwap(old, is) {
			return true
		}
	}
}

func (g *gcra) peek(tat *atomic.Int64) bool {
	now := int64(g.clock.Now())
	return max(tat.Load(), now)+g.every-now <= g.burst
}

// floor has its keys in a map.
type floor struct {
	gcra
	cells map[string]*cell
}

// cell is half a cache line: two processors seldom want the same one.
type cell struct {
	tat atomic.Int64
	_   [24]byte
}

func newFloor(keys []string, rule *limit.Rule, c clock.Clock) *floor {
	f := &floor{gcra: newGCRA(rule, c), cells: make(map[string]*cell, len(keys))}
	for _, k := range keys {
		f.cells[k] = new(cell)
	}
	return f
}

func (f *floor) allow(key string) bool {
	c := f.cells[key]
	return c != nil && f.admit(&c.tat)
}

func (f *floor) peekKey(key string) bool {
	c := f.cells[key]
	return c != nil && f.peek(&c.tat)
}

func floorBy(c clock.Clock) opener {
	return func(_ testing.TB, keys []string, rule *limit.Rule) asks {
		f := newFloor(keys, rule, c)
		return asks{allow: f.allow, peek: f.peekKey}
	}
}

func openFloorCoarse(tb testing.TB, keys []string, rule *limit.Rule) asks {
	return floorBy(coarseClock(tb))(tb, keys, rule)
}

// openFloor has its keys and cells in one array, by hash: one look at memory, as long as
// keys are told by where they are. It could not grow while it is asked.
type openFloor struct {
	gcra
	seed  maphash.Seed
	cells []openCell
}

type openCell struct {
	hash uint64
	tat  atomic.Int64
	key  string
}

func openFloorArray(_ testing.TB, keys []string, rule *limit.Rule) asks {
	f := &openFloor{gcra: newGCRA(rule, nil), seed: maphash.MakeSeed(), cells: make([]openCell, 2<<bits.Len(uint(len(keys))))}
	for _, k := range keys {
		c := f.find(k)
		c.hash, c.key = maphash.String(f.seed, k), k
	}
	return asks{
		allow: func(key string) bool { return f.admit(&f.find(key).tat) },
		peek:  func(key string) bool { return f.peek(&f.find(key).tat) },
	}
}

// find returns the cell of a key, or the one that it would have.
func (f *openFloor) find(key string) *openCell {
	h, mask := maphash.String(f.seed, key), uint64(len(f.cells)-1)
	for i := h; ; i++ {
		c := &f.cells[i&mask]
		if c.hash == h && c.key == key || c.key == "" {
			return c
		}
	}
}
