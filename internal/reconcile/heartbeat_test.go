package reconcile

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Reports are due when a heartbeat is sent, and may turn out to be empty: the heartbeat looks at one record
// nevertheless, so that a loss is found. A node that has written nothing has no record.
func TestHeartbeatAsksForOneShardAtLeast(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("rule", 5, time.Hour, 5))
	c := awake(t, 2, 1)
	if list := c.shardsToAsk(); len(list) != 0 {
		t.Errorf("%v is asked for, and nothing was written", list)
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.normal, s.normalAt = []queued{{counter.New("k", rule, 0, &counter.Group{Link: c.link}, c.local), c.now}}, c.now
	}
	c.shards[1].seq = 1
	if list := c.shardsToAsk(); !slices.Equal(list, []int{1}) {
		t.Errorf("%v is asked for", list)
	}
}
