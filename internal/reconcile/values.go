package reconcile

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/counter"
)

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
	Mode   Mode
	Since  int64  // when the mode began, on the counter clock
	Reason string // why, in a word or two; empty when synced, unless there are processes with another layout
	Err    error  // the error behind it
	Nodes  int    // live nodes, this one included
	Down   int    // shards that are cut off
	Deaf   string // why notices do not arrive, or cannot be published; empty: they do
}

// IncidentKind says what has happened.
type IncidentKind uint8

// The kinds of incidents.
const (
	DataLost    IncidentKind = iota // Redis has lost data that this node has reported
	Quarantined                     // Redis cannot use one key
	Renamed                         // another process was seen to use the name of this node
	Mismatch                        // processes with another layout use the same Redis and prefix
	Deaf                            // notices of other nodes do not arrive, or cannot be published
)

// Incident is something that an operator may want to know, besides changes of the state.
type Incident struct {
	Kind   IncidentKind
	Time   int64 // when it happened, on the counter clock
	Reason string
	Key    string // that it is about; empty: it is not about one key
	Err    error
}

// Unavailable is the error of a flush that ends because Redis cannot be reached.
type Unavailable struct {
	Reason string // one short word
	Err    error  // the error of the client; may be nil
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("redis is unavailable: %s: %v", e.Reason, e.Err)
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
