package hybrid

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// This file writes states, events and statistics as text and as JSON. Modes and kinds are words,
// errors are their text, times are as in RFC 3339, and fields have the same names as in Go. Durations
// are seconds with fractions, and the names of these fields end in Seconds.

// MarshalText returns the mode as a word.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a word.
func (m *Mode) UnmarshalText(text []byte) error { return readWord(m, "mode", modeNames[:], text) }

// MarshalText returns the policy as a word.
func (f Fallback) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads a word.
func (f *Fallback) UnmarshalText(text []byte) error {
	return readWord(f, "fallback", fallbackNames[:], text)
}

// MarshalText returns the kind as a word.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a word.
func (k *EventKind) UnmarshalText(text []byte) error {
	return readWord(k, "kind of event", eventNames[:], text)
}

// readWord sets v to the index of text in words.
func readWord[T ~uint8](v *T, what string, words []string, text []byte) error {
	for i, w := range words {
		if w == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("hybrid: unknown %s %s", what, escape.Quote(string(text)))
}

// stateText is the JSON form of a State.
type stateText struct {
	Mode   Mode
	Since  time.Time `json:",omitzero"`
	Reason string    `json:",omitempty"`
	Err    string    `json:",omitempty"`
	Nodes  int
	Down   int
	Deaf   string `json:",omitempty"`
}

// MarshalJSON returns an object with the fields of s, Err as its text.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(stateText{s.Mode, s.Since, s.Reason, redisstore.Text(s.Err), s.Nodes, s.Down, s.Deaf})
}

// UnmarshalJSON reads what MarshalJSON has written. Err becomes an error with the same
// text.
func (s *State) UnmarshalJSON(text []byte) error {
	var t stateText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*s = State{t.Mode, t.Since, t.Reason, errorOf(t.Err), t.Nodes, t.Down, t.Deaf}
	return nil
}

// eventText is the JSON form of an Event.
type eventText struct {
	Kind   EventKind
	Time   time.Time
	Reason string
	Key    string `json:",omitempty"`
	Err    string `json:",omitempty"`
}

// MarshalJSON returns an object with the fields of e, Err as its text. Bytes of the key
// that are not UTF-8 are replaced.
func (e Event) MarshalJSON() ([]byte, error) {
	return json.Marshal(eventText{e.Kind, e.Time, e.Reason, e.Key, redisstore.Text(e.Err)})
}

// UnmarshalJSON reads what MarshalJSON has written. Err becomes an error with the same
// text.
func (e *Event) UnmarshalJSON(text []byte) error {
	var t eventText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*e = Event{t.Kind, t.Time, t.Reason, t.Key, errorOf(t.Err)}
	return nil
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// plainStats is Stats without its methods.
type plainStats Stats

// statsText is the JSON form of Stats. The durations are not among the other fields.
type statsText struct {
	plainStats
	OldestPendingSeconds, BehindSeconds float64
}

// MarshalJSON returns an object with the fields of s, but OldestPendingSeconds, BehindSeconds and those
// of Exchanges for durations.
func (s Stats) MarshalJSON() ([]byte, error) {
	return json.Marshal(statsText{plainStats(s), s.OldestPending.Seconds(), s.Behind.Seconds()})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (s *Stats) UnmarshalJSON(text []byte) error {
	var t statsText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*s = Stats(t.plainStats)
	s.OldestPending, s.Behind = ofSeconds(t.OldestPendingSeconds), ofSeconds(t.BehindSeconds)
	return nil
}

// latencyText is the JSON form of a Latency.
type latencyText struct {
	LastSeconds, MaxSeconds, SumSeconds float64
	Buckets                             [latencyBounds + 1]uint64
}

// MarshalJSON returns an object with LastSeconds, MaxSeconds, SumSeconds and Buckets.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyText{l.Last.Seconds(), l.Max.Seconds(), l.Sum.Seconds(), l.Buckets})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (l *Latency) UnmarshalJSON(text []byte) error {
	var t latencyText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*l = Latency{ofSeconds(t.LastSeconds), ofSeconds(t.MaxSeconds), ofSeconds(t.SumSeconds), t.Buckets}
	return nil
}

// ofSeconds returns s seconds as a duration, exact to the nanosecond up to 104 days.
func ofSeconds(s float64) time.Duration {
	return time.Duration(math.Round(min(max(s*1e9, math.MinInt64), math.MaxInt64-1023))) // the largest float64 below
}

// String returns the fields that are not 0, as name=value. Of Rules it has the number. Durations have
// two digits.
func (s Stats) String() string { return figures(reflect.ValueOf(s)) }

// String returns the numbers that are not 0, as name=value.
func (o Outcomes) String() string { return figures(reflect.ValueOf(o)) }

// words returns the entries that are not 0, as word=value.
func words(by map[string]uint64) string {
	var list []string
	for _, w := range slices.Sorted(maps.Keys(by)) {
		if by[w] != 0 {
			list = append(list, fmt.Sprintf("%s=%d", w, by[w]))
		}
	}
	return cmp.Or(strings.Join(list, " "), "none")
}

// figures returns the fields of a struct that are not 0, as name=value.
func figures(v reflect.Value) string {
	var b strings.Builder
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		name := v.Type().Field(i).Name
		switch is := f.Interface().(type) {
		case time.Time:
			fmt.Fprintf(&b, "%s=%s", name, is.Format(time.RFC3339Nano))
		case time.Duration:
			fmt.Fprintf(&b, "%s=%v", name, ofSeconds(twoDigits(is.Seconds())))
		case []RuleStats:
			fmt.Fprintf(&b, "%s=%d", name, len(is))
		case map[string]uint64:
			fmt.Fprintf(&b, "%s={%s}", name, words(is))
		case Outcomes, Latency:
			fmt.Fprintf(&b, "%s={%s}", name, figures(f))
		default:
			fmt.Fprintf(&b, "%s=%v", name, f)
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}
