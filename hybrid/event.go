package hybrid

import (
	"fmt"
	"strconv"
	"time"
)

// EventKind says what has happened.
type EventKind uint8

// The kinds of events.
const (
	// EventDataLost: Redis has lost data that this node had been told was there, and is
	// told anew what is known of it.
	EventDataLost EventKind = iota + 1
	// EventQuarantined: Redis cannot use one key, because another program has written to
	// it. The key is decided by the fallback policy, and tried again every few seconds.
	EventQuarantined
	// EventInvalid: a check was asked that cannot be decided; it was denied. There is one
	// event for each cause, however often it occurs (see [Stats].Invalid).
	EventInvalid
	// EventClient: the settings of the Redis client make deadlines void, or repeat calls.
	EventClient
	// EventRenamed: another process, such as a clone of the virtual machine, was seen to
	// go by the name of this node, which has taken a new one. See [Limiter.ID].
	EventRenamed
	// EventConflict: rules of one name that differ in more than the limit are used side by
	// side, so that neither limits anybody to what it says (see [Stats].Conflicts). There is
	// one event for each name.
	EventConflict
	// EventMismatch: other processes use the same Redis and prefix with other Shards, or
	// another version of this library: they share no limit with this one. It is in
	// [State].Reason, too, for as long as they are there.
	EventMismatch
	kindState // of log lines alone
	kinds
)

var eventNames = [...]string{"none", "data-lost", "key-quarantined", "invalid-check", "client-settings", "node-renamed", "rule-conflict", "layout-mismatch"}

// String returns the kind in lower case, with dashes.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is something that an operator may want to know of, besides changes of state. The
// zero Event is none.
type Event struct {
	Kind EventKind
	// Time is when it happened, by the limiter's clock.
	Time time.Time
	// Reason says in a few words what happened, or why.
	Reason string
	// Key is the key that it happened to, as it was given; empty if it was not a key alone.
	Key string
	// Err is the error behind it, if there is one.
	Err error
}

// String describes the event for people and logs.
func (e Event) String() string {
	text := e.Kind.String() + ": " + e.Reason
	if e.Key != "" {
		text += ", key " + escaped(e.Key)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// maxLoggedKey is how many bytes of a key a log line shows at most, quotes included.
const maxLoggedKey = 64

// escaped returns a key as it may be put into a log line: quoted, without control
// characters, and shortened to maxLoggedKey bytes.
func escaped(key string) string {
	const cut = `…"`
	text := strconv.QuoteToASCII(key[:min(len(key), maxLoggedKey)])
	if len(text) <= maxLoggedKey && len(key) <= maxLoggedKey {
		return text
	}
	room := maxLoggedKey - len(cut)
	for n := min(len(key), room); ; n-- {
		if text = strconv.QuoteToASCII(key[:n]); len(text)-1 <= room {
			return text[:len(text)-1] + cut
		}
	}
}
