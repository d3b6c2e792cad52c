package table

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Of keys that share a counter for lack of room nobody's units are handed back,
// and none can be set.
func TestCallsWithoutRoom(t *testing.T) {
	table := newTable(t, Options{MaxKeys: 1, slack: 1, hash: func(string, *limit.Rule) uint64 { return 1 << 40 }})
	r := limit.Must(limit.FixedWindow("r", 5, time.Hour))
	now := start.UnixNano()
	table.takeAt("first", r, 5, now)
	table.takeAt("second", r, 5, now)
	table.takeAt("one", r, 3, now)
	if back := table.Refund("never used", r, 2, now); back != 0 {
		t.Errorf("%d units of others handed back", back)
	}
	if table.Set("another", r, 5, now) {
		t.Error("set without room")
	}
	res, b := table.Reserve("one more", r, 1, now, counter.Terms{Claim: true})
	if b == nil || table.Cancel("one more", r, now, b) != 0 {
		t.Errorf("%+v: canceled", res)
	}
}
