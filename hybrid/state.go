package hybrid

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// Mode is how the limiter decides: alone, together with the other nodes, or by the fallback
// policy.
type Mode uint8

// The modes.
const (
	// LocalOnly: the limiter was made without a Redis client.
	LocalOnly Mode = iota
	// Synced: what this node knows about keys in use is at most about a lag old, see
	// [Options].MaxLag.
	Synced
	// Degraded: Redis, or a part of it, cannot be reached. Keys there are decided by the
	// fallback policy.
	Degraded
	// Resyncing: Redis answers again, and is sent the reports that it has missed. A limiter also
	// starts in this mode, until Redis has answered once.
	Resyncing
	// Closed: the limiter has been closed.
	Closed
)

var modeNames = [...]string{"local-only", "synced", "degraded", "resyncing", "closed"}

// String returns the mode in lower case.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// State describes a limiter's connection to the shared state.
type State struct {
	Mode Mode
	// Since is when the mode was entered, by the limiter's clock. It is zero without Redis.
	Since time.Time
	// Reason says in a word or two why the limiter is in this mode. It is empty when synced,
	// unless there are processes with another layout, with which no limit is shared. Err is the
	// error behind it, if there is one.
	Reason string
	Err    error
	// Nodes is the number of live nodes, this one included, that was reported last. It begins
	// with [Options].ExpectedNodes. For some heartbeats after a start or an outage it does not
	// fall.
	Nodes int
	// Down is the number of shards that are cut off: those of the failed masters on a Cluster;
	// all of [Options].Shards, after a moment, if the only server has failed. Keys of the other
	// shards are decided as if synced.
	Down int
	// NoticesDown says in a word or two why the notices of other nodes do not arrive, or those of this
	// node cannot be published. It is empty if notices work, while Redis is unreachable, and
	// with [Options].PollOnly.
	NoticesDown string
}

// String describes the state for people and logs.
func (s State) String() string {
	why, notices := "", ""
	switch {
	case s.Reason != "" && s.Down > 0:
		why = fmt.Sprintf(" (%s, %d shards)", s.Reason, s.Down)
	case s.Reason != "":
		why = fmt.Sprintf(" (%s)", s.Reason)
	}
	if s.NoticesDown != "" {
		notices = ", notices down (" + s.NoticesDown + ")"
	}
	return fmt.Sprintf("%v%s, %d nodes%s", s.Mode, why, s.Nodes, notices)
}

// modes are the modes, by those of package reconcile.
var modes = [...]Mode{reconcile.Resyncing: Resyncing, reconcile.Synced: Synced, reconcile.Degraded: Degraded}

// stateOf converts a state of package reconcile.
func stateOf(s reconcile.State) State {
	return State{Mode: modes[s.Mode], Since: time.Unix(0, s.Since), Reason: s.Reason, Err: s.Err, Nodes: s.Nodes, Down: s.Down, NoticesDown: s.NoticesDown}
}

// UnavailableError says that Redis could not be reached, and why.
type UnavailableError struct {
	Reason string // one short word, such as "timeout", "refused" or "noauth"
	err    error  // of the client; may be nil
}

func (e *UnavailableError) Error() string {
	if e.err == nil {
		return "hybrid: redis is unavailable: " + e.Reason
	}
	return fmt.Sprintf("hybrid: redis is unavailable: %s: %s", e.Reason, redisstore.Text(e.err))
}

// Unwrap returns the client's error.
func (e *UnavailableError) Unwrap() error { return e.err }

// The causes of invalid checks.
const (
	causeRule  = iota // nil, or not made by a constructor
	causeN            // negative
	causeKind         // a rule of an algorithm that this limiter cannot decide
	causeNames        // different rules of one name, asked together for one key
	causes
)

// EventKind says what kind of event has happened.
type EventKind uint8

// The kinds of events.
const (
	// EventDataLost: Redis has lost data that this node has reported. The node sends again
	// what it knows.
	EventDataLost EventKind = iota + 1
	// EventQuarantined: Redis cannot use one key, because another program has written to it.
	// The key is decided by the fallback policy, and tried again every few seconds.
	EventQuarantined
	// EventInvalid: an invalid check was denied. There is one event for each cause, however
	// often it occurs (see [Stats].Invalid).
	EventInvalid
	// EventClient: the settings of the Redis client disable deadlines, or repeat commands.
	EventClient
	// EventRenamed: another process, such as a clone of the virtual machine, was seen to use
	// the name of this node. The node has taken a new name.
	EventRenamed
	// EventConflict: two rules of one name are in use that differ in more than the limit, so
	// that neither limits a key that both are used for (see [Stats].Conflicts); or a rule is built
	// anew for each check, which is slow. There is one event of each for each name.
	EventConflict
	// EventMismatch: other processes use the same Redis and prefix with another number of
	// Shards, or another version of this library. They share no limit with this one. While
	// they are there, [State].Reason says so too.
	EventMismatch
	// EventNoticesDown: the notices of other nodes do not arrive, or those of this node cannot be
	// published, see [State].NoticesDown.
	EventNoticesDown
	// EventCrowded: keys have to leave memory, and half of MaxRemembered is taken, or keys were forgotten
	// although their units still counted (see [Stats].Displaced), or units were not reported before their
	// key had to leave (see [Stats].OverflowUnits). There is one event in five minutes at most.
	EventCrowded
	kindState // not an event: the kind of log lines about the state
	kinds
)

var eventNames = [...]string{"none", "data-lost", "key-quarantined", "invalid-check", "client-settings", "node-renamed", "rule-conflict", "layout-mismatch", "notices-down", "crowded"}

// String returns the kind in lower case, with dashes.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is something that an operator may want to know, besides changes of the state. The
// zero Event is none.
type Event struct {
	Kind EventKind
	// Time is when it happened, by the limiter's clock.
	Time time.Time
	// Reason says in a few words what has happened, or why.
	Reason string
	// Key is the key that it is about; empty if it is not about one key.
	// Of a key of more than 256 bytes it is the SHA-256 sum, in hexadecimal digits.
	Key string
	// Err is the error behind it, if there is one.
	Err error
}

// String describes the event for people and logs.
func (e Event) String() string {
	text := e.Kind.String() + ": " + e.Reason
	if e.Key != "" {
		text += ", key " + escape.Quote(e.Key)
	}
	if e.Err != nil {
		text += ": " + redisstore.Text(e.Err)
	}
	return text
}

// eventKinds are the kinds of events, by the kinds of incidents.
var eventKinds = [...]EventKind{
	reconcile.DataLost: EventDataLost, reconcile.Quarantined: EventQuarantined, reconcile.Renamed: EventRenamed,
	reconcile.Mismatch: EventMismatch, reconcile.NoticesDown: EventNoticesDown,
}

// eventOf converts an incident of package reconcile.
func eventOf(i reconcile.Incident) Event {
	return Event{Kind: eventKinds[i.Kind], Time: time.Unix(0, i.Time), Reason: i.Reason, Key: i.Key, Err: i.Err}
}
