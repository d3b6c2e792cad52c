package reconcile

import (
	"errors"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

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
	Received struct { // the subscription has begun, has received something or has ended
		Messages  []Message
		Echo      uint64 // number of the newest echo of this node's heartbeats; 0: none
		Confirmed bool   // the subscription has begun
		Dropped   bool   // there was no room for further messages
		Err       error  // why it has ended since; nil: it has not
	}
	Room    struct{ Notice report.Notice } // a caller has made room for a key
	Asked   struct{ Shard int }            // callers ask a shard themselves
	Learned struct {                       // a counter has learnt an answer to a call that was no report
		Counter *counter.Counter
		Outcome counter.Outcome
		Sent    int64 // when the call began, on the counter clock
	}
	Flush struct { // a caller asks for a flush
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
		Channel string          // id of the channel of Notices
		Notices []report.Notice // to be published in the same pipeline
	}
	Publish struct { // publish notices
		ID            uint64
		Timeout       int64 // how long to wait for the answer, ns
		Channel, Node string
		Via           int // shard whose server carries the message, if all servers can
		Notices       []report.Notice
	}
	Listen struct{ Channel, Node string } // subscribe to notices and to Node's echoes, and no others; no channel: to nothing
	Beat   struct {                       // send a heartbeat
		ID      uint64
		Timeout int64 // how long to wait for the answer, ns
		Node    string
		Shards  []int
		Channel string // id of the channel of notices, if an echo is to be published; empty: none
		Via     int    // shard whose server carries the echo, if all servers can
		Echo    uint64 // number of the echo, which Node receives by its subscription
	}
	NewName  struct{ Node string }       // the node has a new name
	NewState struct{ State State }       // the state has changed
	Happened struct{ Incident Incident } // report what an operator may want to know
	Flushed  struct {                    // a flush has ended
		ID     uint64
		Booked bool   // all that was pending is booked. Otherwise Redis cannot be reached:
		Reason string // why, in one short word
		Err    error  // the error behind it; may be nil
	}
)

// Effect is one of the effects above.
type Effect any

// Mode is whether Redis can be reached.
type Mode uint8

// The modes.
const (
	Resyncing Mode = iota // Redis has not answered yet, or is being sent the reports that it has missed
	Synced                // what this node knows about keys in use is at most about a lag old
	Degraded              // Redis, or a part of it, cannot be reached
)

// String returns the mode in lower case.
func (m Mode) String() string { return [...]string{"resyncing", "synced", "degraded"}[m] }

// State describes the connection to Redis.
type State struct {
	Mode        Mode
	Since       int64  // when the mode began, on the counter clock
	Reason      string // why, in a word or two; empty when synced, unless there are processes with another layout
	Err         error  // the error behind it
	Nodes       int    // live nodes, this one included
	Down        int    // shards that are cut off
	NoticesDown string // why notices do not arrive, or cannot be published; empty: they do
}

// IncidentKind says what has happened.
type IncidentKind uint8

// The kinds of incidents.
const (
	DataLost    IncidentKind = iota // Redis has lost data that this node has reported
	Quarantined                     // Redis cannot use one key
	Renamed                         // another process was seen to use the name of this node
	Mismatch                        // processes with another layout use the same Redis and prefix
	NoticesDown                     // notices of other nodes do not arrive, or cannot be published
)

// Incident is something that an operator may want to know, besides changes of the state.
type Incident struct {
	Kind   IncidentKind
	Time   int64 // when it happened, on the counter clock
	Reason string
	Key    string // that it is about; empty: it is not about one key
	Err    error
}

// Fallback is the policy for checks while Redis is unreachable.
type Fallback uint8

// The policies.
const (
	FairShare  Fallback = iota // a unit costs as many units as there were live nodes
	FullLimit                  // each node admits the whole limit
	FailOpen                   // every check for no more units than the limit is admitted
	FailClosed                 // every check is refused
)

// Multiplier returns what a unit costs during an outage, in units, when n nodes are live.
func (f Fallback) Multiplier(n int64) int64 {
	switch f {
	case FullLimit:
		return 1
	case FailOpen:
		return counter.MultiplierOpen
	case FailClosed:
		return counter.MultiplierClosed
	}
	return n
}

// Plain returns err without the prefix "remote: ", the name of a package that the user does not use.
func Plain(err error) error {
	if inner := errors.Unwrap(err); inner != nil && err.Error() == "remote: "+inner.Error() {
		return inner
	}
	return err
}
