package hybrid

import "strings"

// Processes of another layout (see [redisstore.Keyspace.Layout]) share no limit with this one,
// though they use the same Redis and prefix: each kind admits a limit of its own.

// noteLayouts takes note of the layouts of others that a heartbeat has found.
func (c *core) noteLayouts(others []string) {
	if len(others) == 0 && c.members.held(c.now) {
		return // Redis may have lost the list of them, as that of the nodes
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
