package table

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Keys of 1 MiB are counted apart from one another and from their sums, and take no more
// memory than short ones.
func TestLongKeysTakeNoMoreMemory(t *testing.T) {
	const keys = 50
	rule := slow(2)
	for name, hash := range map[string]func(string, *limit.Rule) uint64{"spread": nil, "in one row": oneHash} {
		table := newTable(t, Options{hash: hash})
		now := int64(table.clock.Now())
		pad := strings.Repeat("k", 1<<20)
		before := heap()
		for i := range keys {
			key := fmt.Sprint(pad, i)
			sum, _ := counter.KeyOf(key)
			for _, k := range []string{key, sum} {
				for n, want := range []bool{true, true, false} {
					if ok, _ := table.Allow(k, rule, 1, now); ok != want {
						t.Errorf("%s: unit %d of key %d, %d bytes: %v", name, n, i, len(k), ok)
					}
				}
			}
			if i == keys/2 {
				table.growForTest()
			}
		}
		table.growForTest()
		for i := range keys {
			if ok, _ := table.Allow(fmt.Sprint(pad, i), rule, 1, now); ok {
				t.Errorf("%s: key %d was forgotten", name, i)
			}
		}
		if n := table.Stats().Live; n != 2*keys {
			t.Errorf("%s: %d counters of %d keys", name, n, 2*keys)
		}
		if grown := heap() - before; grown > 1<<20 {
			t.Errorf("%s: %d bytes for %d keys of 1 MiB", name, grown, keys)
		}
	}
}

// A refused long key is refused by its lease: its sum is not computed for each check.
func TestLongKeysHaveLeases(t *testing.T) {
	table := newTable(t, Options{})
	rule, now := slow(100), start.UnixNano()
	key := strings.Repeat("k", counter.MaxKey+1)
	table.Allow(key, rule, 1, now)
	if _, _, leased := table.AllowBy(at(now+int64(time.Millisecond)), key, rule, 1); !leased {
		t.Error("no lease")
	}
}
