package hybrid

import "github.com/hybridlimit/hybridlimit/internal/redisstore"

// Events.
type (
	evTick    struct{} // time has passed, or counters are waiting
	evReplies struct {
		id       uint64
		recv     int64 // local time
		outcomes []redisstore.Outcome
	}
	evTimeout struct{ id uint64 } // the exchange has overrun its deadline
	evFreed   struct{ id uint64 } // one that had has ended
	evBeat    struct {
		id    uint64
		recv  int64
		addrs []string // of the servers of all shards, see [redisstore.Store.Servers]
		beat  redisstore.Beat
		err   error
	}
	evFlush struct {
		id  uint64
		all bool // refresh every live counter, not only report what is pending
	}
	evWithdraw struct{ id uint64 } // nobody waits for that flush any more
)

type event any

// Effects.
type (
	efSend struct {
		id      uint64
		batches []*redisstore.Batch
	}
	efBeat struct {
		id     uint64
		node   string
		shards []int
	}
	efName    struct{ node string } // the node goes by this name from now on
	efState   struct{ state State }
	efEvent   struct{ event Event }
	efFlushed struct {
		id  uint64
		err error
	}
)

type effect any
