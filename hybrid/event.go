package hybrid

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
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
	// the name of this node. The node has taken a new name. See [Limiter.ID].
	EventRenamed
	// EventConflict: two rules of one name are in use that differ in more than the limit, so
	// that neither limits a key that both are used for (see [Stats].Conflicts). There is one
	// event for each name.
	EventConflict
	// EventMismatch: other processes use the same Redis and prefix with another number of
	// Shards, or another version of this library. They share no limit with this one. While
	// they are there, [State].Reason says so too.
	EventMismatch
	// EventDeaf: the notices of other nodes do not arrive, or those of this node cannot be
	// published, see [State].Deaf.
	EventDeaf
	kindState // not an event: the kind of log lines about the state
	kinds
)

var eventNames = [...]string{"none", "data-lost", "key-quarantined", "invalid-check", "client-settings", "node-renamed", "rule-conflict", "layout-mismatch", "deaf"}

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
		text += ": " + textOf(e.Err)
	}
	return text
}
