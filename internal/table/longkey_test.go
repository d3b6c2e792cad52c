package table

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

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
