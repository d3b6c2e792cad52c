package hybrid

import (
	"cmp"
	"encoding/json"
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

// MarshalText returns the kind as a word.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

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

// latencyText is the JSON form of a Latency.
type latencyText struct {
	LastSeconds, MaxSeconds, SumSeconds float64
	Buckets                             [latencyBounds + 1]uint64
}

// MarshalJSON returns an object with LastSeconds, MaxSeconds, SumSeconds and Buckets.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyText{l.Last.Seconds(), l.Max.Seconds(), l.Sum.Seconds(), l.Buckets})
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
			fmt.Fprintf(&b, "%s=%v", name, time.Duration(math.Round(twoDigits(is.Seconds())*1e9)))
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
