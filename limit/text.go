package limit

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
)

// Results as JSON and in logs have the field names of the command line's JSON: durations are
// in seconds, as their names say, and sources are words.

// resultText is the JSON form of a Result.
type resultText struct {
	Allowed     bool     `json:"allowed"`
	WouldRefuse bool     `json:"would_refuse"`
	Limit       int64    `json:"limit"`
	Remaining   int64    `json:"remaining"`
	RetryAfter  *float64 `json:"retry_after_seconds"` // null: never
	ResetAfter  *float64 `json:"reset_after_seconds"`
	Source      Source   `json:"source"`
}

func (res *Result) text() resultText {
	return resultText{res.Allowed, res.WouldRefuse, res.Limit, res.Remaining, inSeconds(res.RetryAfter), inSeconds(res.ResetAfter), res.Source}
}

func (t *resultText) result() Result {
	return Result{t.Allowed, t.WouldRefuse, t.Limit, t.Remaining, ofSeconds(t.RetryAfter), ofSeconds(t.ResetAfter), t.Source}
}

// inSeconds returns a duration in seconds, nil for Never.
func inSeconds(d time.Duration) *float64 {
	if d == Never {
		return nil
	}
	s := d.Seconds()
	return &s
}

// ofSeconds is the reverse of inSeconds, exact to the nanosecond up to 104 days.
func ofSeconds(s *float64) time.Duration {
	if s == nil || *s*1e9 >= math.MaxInt64 {
		return Never
	}
	return time.Duration(math.Round(max(*s*1e9, math.MinInt64)))
}

// MarshalJSON returns an object with allowed, would_refuse, limit, remaining,
// retry_after_seconds, reset_after_seconds and source, which is a word. Seconds have fractions,
// and are null for [Never].
func (res Result) MarshalJSON() ([]byte, error) { return json.Marshal(res.text()) }

// UnmarshalJSON reads what MarshalJSON has written.
func (res *Result) UnmarshalJSON(text []byte) error {
	t := (&Result{}).text() // a missing duration is 0, not Never
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*res = t.result()
	return nil
}

// LogValue returns a group with the names and values that MarshalJSON has.
func (res Result) LogValue() slog.Value {
	seconds := func(name string, d time.Duration) slog.Attr {
		if d == Never {
			return slog.Any(name, nil)
		}
		return slog.Float64(name, d.Seconds())
	}
	return slog.GroupValue(
		slog.Bool("allowed", res.Allowed), slog.Bool("would_refuse", res.WouldRefuse),
		slog.Int64("limit", res.Limit), slog.Int64("remaining", res.Remaining),
		seconds("retry_after_seconds", res.RetryAfter), seconds("reset_after_seconds", res.ResetAfter),
		slog.String("source", res.Source.String()))
}

// allText is the JSON form of an AllResult.
type allText struct {
	resultText
	By   int    `json:"by"`
	Rule string `json:"rule,omitempty"`
}

// ruleName returns the name of the rule that decided, empty if there is none.
func (all *AllResult) ruleName() string {
	if all.Rule == nil {
		return ""
	}
	return all.Rule.Name()
}

// MarshalJSON returns the object of the Result, with by and rule (the name of the rule) added.
func (all AllResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(allText{all.text(), all.By, all.ruleName()})
}

// UnmarshalJSON reads what MarshalJSON has written. Rule is nil then: a name alone does not make a rule.
func (all *AllResult) UnmarshalJSON(text []byte) error {
	t := allText{resultText: (&Result{}).text()}
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*all = AllResult{Result: t.result(), By: t.By}
	return nil
}

// LogValue returns a group with the names and values that MarshalJSON has.
func (all AllResult) LogValue() slog.Value {
	attrs := append(all.Result.LogValue().Group(), slog.Int("by", all.By))
	if name := all.ruleName(); name != "" {
		attrs = append(attrs, slog.String("rule", name))
	}
	return slog.GroupValue(attrs...)
}

// MarshalText returns the source as a word.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a word.
func (s *Source) UnmarshalText(text []byte) error {
	for i, name := range sourceNames {
		if name == string(text) {
			*s = Source(i)
			return nil
		}
	}
	return fmt.Errorf("limit: unknown source %s", escape.Quote(string(text)))
}
