package hybrid

import "github.com/hybridlimit/hybridlimit/internal/redisstore"

// Events are what the driver gives to the core.
type (
	evTick    struct{} // time has passed, or checks have handed over counters
	evReplies struct { // a pipeline has ended
		id         uint64
		recv       int64 // when, on the counter clock
		took       int64 // how long the call itself has taken, ns
		outcomes   []redisstore.Outcome
		publishErr error // why its notices were not published
		dialed     bool  // the client may have made a connection meanwhile
	}
	evTimeout struct{ id uint64 } // a pipeline or a heartbeat has overrun its deadline
	evFreed   struct{ id uint64 } // a pipeline that had overrun its deadline has returned
	evBeat    struct {            // a heartbeat has ended
		id    uint64
		recv  int64    // when, on the counter clock
		addrs []string // addresses of the servers of all shards, see [redisstore.Store.Servers]
		beat  redisstore.Beat
		err   error
	}
	evPublished struct { // a call that publishes notices has ended
		id  uint64
		err error
	}
	evHeard struct { // the subscription has brought something
		recv      int64 // when, on the counter clock
		messages  []message
		echo      uint64 // newest echo of this node's heartbeats; 0: none
		confirmed bool   // the subscription has begun
		err       error  // it has ended since
	}
	evRoom  struct{ notice redisstore.Notice } // a caller has made room for a key
	evFlush struct {                           // a caller asks for a flush
		id  uint64
		all bool // also fetch the state of counters that have nothing to report
	}
	evWithdraw struct{ id uint64 } // no caller waits for that flush any more
)

type event any

// Effects are what the core asks the driver to do.
type (
	efSend struct { // send a pipeline
		id      uint64
		timeout int64 // how long to wait for the answer, ns
		batches []*redisstore.Batch
		channel string              // id of the channel for
		notices []redisstore.Notice // that travel with them
	}
	efPublish struct { // publish notices
		id            uint64
		timeout       int64 // how long to wait for the answer, ns
		channel, node string
		notices       []redisstore.Notice
	}
	efListen struct{ channel, node string } // subscribe anew to notices and to the echo of node; without a channel to nothing
	efBeat   struct {                       // send a heartbeat
		id      uint64
		timeout int64 // how long to wait for the answer, ns
		node    string
		shards  []int
		channel string // whose echo is to be published; empty: none
		echo    uint64
	}
	efName    struct{ node string } // publish the new name of the node
	efState   struct{ state State } // publish the state
	efEvent   struct{ event Event } // report an event
	efFlushed struct {              // a flush has ended
		id  uint64
		err error
	}
)

type effect any
