package hybrid

import "strings"

// Processes with another layout (see [redisstore.Keyspace.Layout]) use other Redis keys,
// although they have the same Redis and prefix. They share no limit with this process: each
// layout admits a whole limit.

// noteLayouts applies the list of other layouts that a heartbeat has found.
func (c *core) noteLayouts(others []string) {
	if len(others) == 0 && c.members.held(c.now) {
		return // Redis may have lost the list
	}
	c.stats.mismatches.Store(int64(len(others)))
	found := ""
	if len(others) > 0 {
		found = "shares no limits with processes of another layout: " + strings.Join(others, "; ") + ", and here " + c.keys.Layout()
	}
	if found == c.mismatch {
		return
	}
	if c.mismatch = found; found != "" {
		c.happened(Event{Kind: EventMismatch, Reason: found})
	}
}
