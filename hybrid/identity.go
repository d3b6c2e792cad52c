package hybrid

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// identities is where a core gets what tells it apart from every other process,
// one that was copied from it included: a virtual machine that is cloned, or
// restored from a snapshot, has the memory of the original, and with it the state of
// every generator in it. Whoever runs the core takes them from outside.
type identities struct {
	name  func() string // for a node
	nonce func() uint64 // for a flight
}

// systemIdentities asks the operating system.
func systemIdentities() identities {
	return identities{
		name: func() string {
			var b [12]byte
			_, _ = rand.Read(b[:]) // never fails: the runtime would crash first
			return hex.EncodeToString(b[:])
		},
		nonce: func() uint64 {
			var b [8]byte
			_, _ = rand.Read(b[:])
			return binary.BigEndian.Uint64(b[:])
		},
	}
}

// rename gives the node a new name after somebody else was seen to report under
// the one it has. A shard whose flight may have been booked under the old name
// keeps that name until its fate is known; the others begin anew at once. The
// next heartbeat enters the node among the live ones. All counters are asked for:
// only where Redis has a record of the node does a heartbeat show that Redis has
// lost what the node knows.
func (c *core) rename() {
	old := c.node
	c.node = c.ids.name()
	c.happened(Event{Kind: EventRenamed, Reason: fmt.Sprintf("another process reports as %s, perhaps a copy of this one; this one is %s now", old, c.node)})
	c.stats.renames.Add(1)
	c.emit(efName{c.node})
	for i := range c.shards {
		if s := &c.shards[i]; s.flight == nil {
			s.begin(c.node)
		}
	}
	c.refreshAll()
}

// begin counts the flights of a shard under another name. That Redis has no record
// of them is not a loss.
func (s *shard) begin(node string) { s.node, s.seq, s.acked, s.asks = node, 0, 0, false }

// nameTaken handles that Redis has somebody else's batch under the number of the
// flight of s, or a later one. Under that name the flight cannot be booked any
// more, so it is sent under the node's new one.
func (c *core) nameTaken(s *shard) {
	c.giveUpRefunds(s) // it may have been booked before the other came
	if s.node == c.node {
		c.rename()
	}
	s.begin(c.node)
	s.seq = 1
	s.retry = c.now + c.jitter(c.cfg.retry, 0.5, 1.5)
}
