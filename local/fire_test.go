package local

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Whatever rule a key has, however long it is, and whoever else comes meanwhile, so that
// the cache sends it away and the slots are fought for, its limit holds, to the unit. What
// nobody has told Redis of is never forgotten.
func TestNothingIsLostAmongStrangers(t *testing.T) {
	evictions := int64(0)
	for seed := range uint64(4) {
		f := newFire(t, 1<<seed)
		var wg sync.WaitGroup
		for g := range uint64(4) {
			wg.Go(func() { f.ask(rand.New(rand.NewPCG(seed, g))) })
		}
		wg.Wait()
		f.check(t)
		evictions += f.table.Stats().Evictions
	}
	if evictions == 0 {
		t.Error("nobody was sent away")
	}
}

const (
	fireKeys  = 18
	fireLimit = 6000
)

// fire is keys that are asked all at once, and what they were admitted.
type fire struct {
	table    *Table
	keys     [fireKeys]string
	rules    [3][2]*limit.Rule // twice the same
	handles  [3][fireKeys]*Handle
	admitted [3][fireKeys]atomic.Int64
}

// newFire returns a table that has its own keys in so many rows of slots and each rule's in
// another shard of the side table: a full shard would have them share counters.
func newFire(t *testing.T, rows uint64) *fire {
	f := new(fire)
	for i := range f.keys {
		key := []byte(strings.Repeat("m", 12+i*3)) // shorter than a slot has room for, and longer than a middle
		key[len(key)/2] = byte('a' + i)
		f.keys[i] = string(key)
	}
	for i := range f.rules[0] {
		f.rules[0][i] = limit.Must(limit.Funnel("0", fireLimit, 1, time.Hour))
		f.rules[1][i] = limit.Must(limit.FixedWindow("1", fireLimit, 1000*time.Hour))
		f.rules[2][i] = limit.Must(limit.SlidingWindow("2", fireLimit, 1000*time.Hour))
	}
	f.table = newTable(t, TableOptions{MaxKeys: 1024, Link: newTestLink(), hash: func(key string, r *limit.Rule) uint64 {
		h := uint64(1) << 63
		if n, isOurs := uint64(len(key)), key[0] == 'm'; isOurs {
			return (n/3*3+uint64(r.Name()[0]-'0'))%(3*fireKeys)<<57 | n/3%rows<<8
		}
		for _, b := range []byte(key) {
			h = (h ^ uint64(b)) * 0x100000001b3
		}
		return h | 1<<63
	}})
	middling(f.table)
	for r := range f.rules {
		for k, key := range f.keys {
			f.handles[r][k] = new(Handle)
			f.handles[r][k].Bind(f.table, key, f.rules[r][0])
		}
	}
	return f
}

// ask asks for one key for a while, and then for another.
func (f *fire) ask(rng *rand.Rand) {
	k, r := 0, 0
	for range 40_000 {
		if rng.IntN(40) == 0 {
			k, r = rng.IntN(fireKeys), rng.IntN(len(f.rules))
		}
		key, rule, now := f.keys[k], f.rules[r][0], int64(f.table.clock.Now())
		if rng.IntN(500) == 0 {
			rule = f.rules[r][1]
		}
		n, ok := int64(1), false
		switch x := rng.IntN(300); {
		case x == 0:
			n, ok = -f.table.Refund(key, rule, 1, now), true
		case x == 1:
			n = 3
			ok, _ = f.table.Allow(key, rule, n, now)
		case x == 2:
			f.table.lodge.season.turn()
		case x == 3:
			f.table.Peek(key, rule, 1, now)
		case x < 10:
			f.table.Allow(fmt.Sprint("stranger", rng.IntN(3000)), rule, 1, now)
			runtime.Gosched() // the cache has to make room
		case x < 25:
			ok = f.table.Take(key, rule, 1, now).Allowed
		case x < 60:
			ok, _ = f.handles[r][k].Allow(1, now)
		default:
			ok, _ = f.table.Allow(key, rule, 1, now)
		}
		if ok {
			f.admitted[r][k].Add(n)
		}
	}
}

func (f *fire) check(t *testing.T) {
	t.Helper()
	now := int64(f.table.clock.Now())
	for r := range f.rules {
		for k, key := range f.keys {
			used := fireLimit - f.table.Peek(key, f.rules[r][0], 1, now).Remaining
			if got := f.admitted[r][k].Load(); got != used || got > fireLimit {
				t.Errorf("%v, %d bytes: %d units admitted, %d counted", f.rules[r][0], len(key), got, used)
			}
		}
	}
}
