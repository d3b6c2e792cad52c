package httplimit

import (
	"encoding/json"
	"log/slog"
)

// MarshalJSON returns the object of the AllResult with policy, exempt, and err as its text. Without it a
// Decision would be the AllResult alone, whose methods it has. It is not for reading back.
func (d Decision) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(d.AllResult)
	if err != nil {
		return nil, err
	}
	var why struct {
		Policy string `json:"policy"`
		Exempt string `json:"exempt,omitempty"`
		Err    string `json:"err,omitempty"`
	}
	if why.Policy, why.Exempt = d.Policy, d.Exempt; d.Err != nil {
		why.Err = d.Err.Error()
	}
	more, err := json.Marshal(why)
	return append(append(text[:len(text)-1], ','), more[1:]...), err
}

// LogValue returns a group with the names and values that MarshalJSON has.
func (d Decision) LogValue() slog.Value {
	attrs := append(d.AllResult.LogValue().Group(), slog.String("policy", d.Policy))
	if d.Exempt != "" {
		attrs = append(attrs, slog.String("exempt", d.Exempt))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.String("err", d.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}
