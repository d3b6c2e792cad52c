package hybrid

// beat is a heartbeat under way. It also probes servers that were unreachable, and checks
// shards that have nothing to send for lost data.
type beat struct {
	id          uint64
	at          int64   // when it was sent, on the clock that timers run on
	sent        int64   // the same instant on the counters' clock
	node        string  // the name that it enters, and whose records it asks for
	shards      []int   // the shards that it asks for
	acked       []int64 // per shard: the number acknowledged under that name when the heartbeat was sent
	beatsForAll int64   // how many such heartbeats ask for all shards
}

// heartbeats is when the next heartbeat is sent, and how the latest one ended.
type heartbeats struct {
	next    int64 // when the next heartbeat or probe is due
	current *beat // the one under way; nil: none

	lastFailed   bool // the latest one ended with an error
	probesFailed int  // probes that failed in a row
	unanswered   int  // heartbeats and probes in a row that had no answer in time

	dataLost bool  // data was lost since the latest heartbeat was sent: ask for all shards
	left     int64 // how many more heartbeats that takes
}

// askAll makes the next heartbeats ask for all shards, one directly after the other.
func (h *heartbeats) askAll(now int64) { h.dataLost, h.next = true, now }

// begin notes that b was sent.
func (h *heartbeats) begin(b *beat) {
	if h.dataLost {
		h.dataLost, h.left = false, b.beatsForAll
	}
	h.current = b
}

// end notes that the heartbeat under way has ended, with an error or because its time was up.
func (h *heartbeats) end(failed, late bool) {
	if h.current, h.lastFailed = nil, failed; late {
		h.unanswered++
	} else if !failed {
		h.unanswered = 0
	}
}

// directly reports whether the next heartbeat follows directly. It is called once per
// heartbeat that has ended.
func (h *heartbeats) directly() bool {
	h.left = max(h.left-1, 0)
	return h.dataLost || h.left > 0
}
