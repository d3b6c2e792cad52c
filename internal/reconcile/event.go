package reconcile

import "github.com/hybridlimit/hybridlimit/internal/redisstore"

// Events are what package hybrid gives to [Machine.Step].
type (
	Tick    struct{} // time has passed, or checks have queued counters
	Replies struct { // a pipeline has ended
		ID         uint64
		Recv       int64 // when, on the counter clock
		Took       int64 // how long the call itself has taken, ns
		Outcomes   []redisstore.Outcome
		PublishErr error // why the notices in it were not published
		Dialed     bool  // the client may have made a connection meanwhile
	}
	TimedOut   struct{ ID uint64 } // a pipeline or a heartbeat has overrun its deadline
	Freed      struct{ ID uint64 } // a pipeline that had overrun its deadline has returned
	BeatAnswer struct {            // a heartbeat has ended
		ID    uint64
		Recv  int64    // when, on the counter clock
		Addrs []string // addresses of the servers of all shards, see [redisstore.Store.Servers]
		Beat  redisstore.Beat
		Err   error
	}
	Published struct { // a call that publishes notices has ended
		ID  uint64
		Err error
	}
	Heard struct { // the subscription has begun, has received something or has ended
		Recv      int64 // when, on the counter clock
		Messages  []Message
		Echo      uint64 // number of the newest echo of this node's heartbeats; 0: none
		Confirmed bool   // the subscription has begun
		Err       error  // why it has ended since; nil: it has not
	}
	Room  struct{ Notice redisstore.Notice } // a caller has made room for a key
	Flush struct {                           // a caller asks for a flush
		ID  uint64
		All bool // also fetch the state of counters that have nothing to report
	}
	Withdraw struct{ ID uint64 } // no caller waits for that flush any more
)

// Event is one of the types above.
type Event any

// Effects are what [Machine.Step] asks package hybrid to do.
type (
	Send struct { // send a pipeline
		ID      uint64
		Timeout int64 // how long to wait for the answer, ns
		Batches []*redisstore.Batch
		Channel string              // id of the channel of Notices
		Notices []redisstore.Notice // to be published in the same pipeline
	}
	Publish struct { // publish notices
		ID            uint64
		Timeout       int64 // how long to wait for the answer, ns
		Channel, Node string
		Notices       []redisstore.Notice
	}
	Listen struct{ Channel, Node string } // subscribe to notices and to Node's echoes, and no others; no channel: to nothing
	Beat   struct {                       // send a heartbeat
		ID      uint64
		Timeout int64 // how long to wait for the answer, ns
		Node    string
		Shards  []int
		Channel string // id of the channel of notices, if an echo is to be published; empty: none
		Echo    uint64 // number of the echo, which Node receives by its subscription
	}
	NewName  struct{ Node string }       // the node has a new name
	NewState struct{ State State }       // the state has changed
	Happened struct{ Incident Incident } // report what an operator may want to know
	Flushed  struct {                    // a flush has ended
		ID  uint64
		Err error
	}
)

// Effect is one of the effects above.
type Effect any
