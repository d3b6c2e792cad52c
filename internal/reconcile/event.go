package reconcile

import "github.com/hybridlimit/hybridlimit/internal/redisstore"

// Events are what the driver gives to the machine.
type (
	Tick    struct{} // time has passed, or checks have handed over counters
	Replies struct { // a pipeline has ended
		ID         uint64
		Recv       int64 // when, on the counter clock
		Took       int64 // how long the call itself has taken, ns
		Outcomes   []redisstore.Outcome
		PublishErr error // why its notices were not published
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
	Heard struct { // the subscription has brought something
		Recv      int64 // when, on the counter clock
		Messages  []Message
		Echo      uint64 // newest echo of this node's heartbeats; 0: none
		Confirmed bool   // the subscription has begun
		Err       error  // it has ended since
	}
	Room  struct{ Notice redisstore.Notice } // a caller has made room for a key
	Flush struct {                           // a caller asks for a flush
		ID  uint64
		All bool // also fetch the state of counters that have nothing to report
	}
	Withdraw struct{ ID uint64 } // no caller waits for that flush any more
)

// Event is one of these.
type Event any

// Effects are what the machine asks the driver to do.
type (
	Send struct { // send a pipeline
		ID      uint64
		Timeout int64 // how long to wait for the answer, ns
		Batches []*redisstore.Batch
		Channel string              // id of the channel for
		Notices []redisstore.Notice // that travel with them
	}
	Publish struct { // publish notices
		ID            uint64
		Timeout       int64 // how long to wait for the answer, ns
		Channel, Node string
		Notices       []redisstore.Notice
	}
	Listen struct{ Channel, Node string } // subscribe anew to notices and to the echo of node; without a channel to nothing
	Beat   struct {                       // send a heartbeat
		ID      uint64
		Timeout int64 // how long to wait for the answer, ns
		Node    string
		Shards  []int
		Channel string // whose echo is to be published; empty: none
		Echo    uint64
	}
	NewName  struct{ Node string }       // publish the new name of the node
	NewState struct{ State State }       // publish the state
	Happened struct{ Incident Incident } // report what an operator may want to know
	Flushed  struct {                    // a flush has ended
		ID  uint64
		Err error
	}
)

// Effect is one of these.
type Effect any
