package reconcile

import "github.com/hybridlimit/hybridlimit/internal/counter"

// A node hears with its heartbeats how many nodes there are. Until the next heartbeat it does not count
// those that have joined since, and would hide too many units from them, above all if it takes itself for
// the only node. So a node that joins publishes a greeting, which is a message without notices. A node that
// starts does not know yet who else has: it subscribes first, and then sends a heartbeat. Whoever is not
// in that list will greet it.
//
// A greeting changes only how urgent reports are. Lost or forged ones do no other harm.

// unknownNodes is how many nodes a node that starts assumes at least, until it has heard the list.
const unknownNodes = 32

// entryBeats is for how many heartbeats Redis keeps the entry of a node.
const entryBeats = 3

// joining is what a node knows of nodes that heartbeats have not counted.
type joining struct {
	complete  bool   // the list was heard, and no node can have joined since without a greeting
	listedAs  string // name of this node's entry; empty: it has none yet
	listedAt  int64  // when the latest heartbeat was sent that Redis has answered, on the timer clock
	enteredAt int64  // when the first answer came
	joined    int64  // greetings that the list does not include yet
	adjusted  int64  // number of nodes by which all counters decide how urgent they are
}

// listed applies that Redis has answered a heartbeat with the list of nodes. It reports whether the entry
// of this node is new.
func (j *joining) listed(b *beat, now, heartbeat int64) (isNew bool) {
	isNew = j.listedAs != b.node || b.at-j.listedAt >= entryBeats*heartbeat
	if j.listedAs == "" {
		j.enteredAt = now
	}
	j.listedAs, j.listedAt = b.node, b.at
	j.joined -= b.joined
	// Without notices the next heartbeat but one shows all that have started within a heartbeat of this node.
	j.complete = j.complete || b.receives || b.at-j.enteredAt >= heartbeat
	return isNew
}

// assumed returns how many nodes there may be, if Redis has counted n.
func (j *joining) assumed(n int64) int64 {
	if n += j.joined; !j.complete {
		n = max(n, unknownNodes)
	}
	return n
}

// assumeNodes makes reports as urgent as the number of nodes requires. If it has doubled, units that
// counters hide already may have become too many.
func (c *Machine) assumeNodes() {
	n := c.joining.assumed(c.members.count)
	c.link.SetNodes(n)
	if n < 2*c.joining.adjusted {
		c.joining.adjusted = min(c.joining.adjusted, n)
		return
	}
	c.joining.adjusted = n
	c.each(func(k *counter.Counter) bool {
		c.afterSettle(k, k.MoreNodes(c.local), c.local)
		return true
	})
}
