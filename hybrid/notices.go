package hybrid

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A node that learns from Redis that its report has used up a key says so to all others at once, on a
// channel. A notice is a hint: it refuses until the key has room again or Redis has answered, and
// nothing else leans on it.

const (
	// maxDeliveries bounds the messages that Redis delivers: so many a second to all nodes
	// together. A delivery takes it about 5 µs of processor time.
	maxDeliveries = 20_000
	// maxAnnounced bounds the notices that wait to be published. When there are so many a quarter is
	// dropped.
	maxAnnounced = 4_000
	// echoesMissed is after how many heartbeats in a row whose echo was not heard the
	// subscription counts as broken.
	echoesMissed = 2
	// deafAfter is after how many heartbeats without a subscription that is said.
	deafAfter = 3
)

// notices is what a node has to say to the others, and whether it hears them.
type notices struct {
	channel   string // id of the channel; empty: not known
	asked     bool   // a heartbeat has said what the channel is, or that there is none
	confirmed bool   // the subscription is
	silent    int    // heartbeats in a row whose echo was not heard
	echo      uint64 // number of the latest
	echoed    uint64 // the latest that was heard
	since     int64  // when the subscription was last in order, on the timer clock
	err       error  // why it is not; nil: not known
	muted     error  // why nothing can be published; nil: it can

	announced  map[counter.NoticeID]redisstore.Notice // to be published
	room       bool                                   // some of them say that there is room: these do not wait
	publishing uint64                                 // id of the call that publishes; 0: none
	publishAt  int64                                  // nothing is published before, unless there is room
	spent      int64                                  // until when the messages heard and sent use up what Redis may deliver, on the timer clock

	byID map[uint64]*counter.Counter // by the first bytes of the ID; all that Redis has answered for
	kept int                         // how many of them were alive at the last look
}

// noticeIDs returns the function that names counters in notices.
func noticeIDs(keys redisstore.Keyspace) func(shard int, rule *limit.Rule, key string, hashed bool) counter.NoticeID {
	return func(shard int, rule *limit.Rule, key string, hashed bool) counter.NoticeID {
		return counter.NoticeID(keys.NoticeID(shard, rule, key, hashed))
	}
}

// message is what a node has published at once.
type message struct {
	node    string
	notices []redisstore.Notice
}

// hears reports whether the notices of other nodes arrive.
func (h *notices) hears() bool { return h.confirmed && h.silent < echoesMissed }

// beatsWith notes that a heartbeat is sent, and returns the number of its echo.
func (h *notices) beatsWith() uint64 {
	if h.confirmed && h.echoed < h.echo {
		h.silent++
	} else {
		h.silent = 0
	}
	h.echo++
	return h.echo
}

// inOrder returns what is to be published: first that there is room, then the longest waits.
func (h *notices) inOrder() []redisstore.Notice {
	return slices.SortedFunc(maps.Values(h.announced), func(a, b redisstore.Notice) int {
		if (a.Until == 0) != (b.Until == 0) {
			return cmp.Compare(a.Until, b.Until)
		}
		return cmp.Or(cmp.Compare(b.Until, a.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
}

// mayPublishAt returns when the deliveries of the last second are few enough for another message.
func (h *notices) mayPublishAt() int64 { return max(h.spent-int64(time.Second), h.publishAt) }

// idPrefix returns the part of an ID by which counters are looked up. Counters that share it are
// rare, and lose no more than notices.
func idPrefix(id counter.NoticeID) uint64 { return binary.BigEndian.Uint64(id[:]) }
