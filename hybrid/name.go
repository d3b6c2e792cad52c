package hybrid

import (
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// nameOf returns the name of a counter in Redis.
func (c *core) nameOf(ctr *counter.Counter, rule *limit.Rule) string {
	return c.keys.CounterKeyIn(ctr.Shard(), rule, ctr.Key(), ctr.IsHashed())
}
