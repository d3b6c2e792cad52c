package hybrid

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// This file writes states and events as text and as JSON. Modes and kinds are words, errors are their
// text, times are as in RFC 3339, and fields have the same names as in Go.

// MarshalText returns the policy as a word.
func (f Fallback) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads a word, so that a flag or a file can have the policy.
func (f *Fallback) UnmarshalText(text []byte) error {
	i := slices.Index(fallbackNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("hybrid: unknown fallback %s", escape.Quote(string(text)))
	}
	*f = Fallback(i)
	return nil
}

// stateText is the JSON form of a State.
type stateText struct {
	Mode        string
	Since       time.Time `json:",omitzero"`
	Reason      string    `json:",omitempty"`
	Err         string    `json:",omitempty"`
	Nodes       int
	Down        int
	NoticesDown string `json:",omitempty"`
}

// MarshalJSON returns an object with the fields of s, Err as its text.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(stateText{s.Mode.String(), s.Since, s.Reason, redisstore.Text(s.Err), s.Nodes, s.Down, s.NoticesDown})
}

// eventText is the JSON form of an Event.
type eventText struct {
	Kind   string
	Time   time.Time
	Reason string
	Key    string `json:",omitempty"`
	Err    string `json:",omitempty"`
}

// MarshalJSON returns an object with the fields of e, Err as its text. Bytes of the key
// that are not UTF-8 are replaced.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(eventText{e.Kind.String(), e.Time, e.Reason, e.Key, redisstore.Text(e.Err)})
}
