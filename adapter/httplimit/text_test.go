package httplimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// A decision has more than the result whose methods it has, and shows no key.
func TestDecisionAsText(t *testing.T) {
	res := limit.Result{Limit: 10, RetryAfter: 1500 * time.Millisecond, ResetAfter: time.Minute, Source: limit.SourceSynced}
	const result = `{"allowed":false,"would_refuse":false,"limit":10,"remaining":0,"retry_after_seconds":1.5,"reset_after_seconds":60,"source":"synced"`
	for _, c := range []struct {
		d    Decision
		want string
	}{
		{Decision{AllResult: limit.AllResult{Result: res, Rule: tenPerSecond}, Checks: []limit.Check{{Key: "secret"}}, Policy: "p"},
			result + `,"by":0,"rule":"upstream","policy":"p"}`},
		{Decision{AllResult: limit.AllResult{Result: res, By: -1}, Err: errors.New("why")}, result + `,"by":-1,"policy":"","err":"why"}`},
	} {
		if text, err := json.Marshal(c.d); err != nil || string(text) != c.want {
			t.Errorf("%s, %v,\nwant %s", text, err, c.want)
		}
		var line bytes.Buffer
		slog.New(slog.NewJSONHandler(&line, nil)).Info("m", "d", c.d)
		if !strings.HasSuffix(strings.TrimSpace(line.String()), `"d":`+c.want+`}`) {
			t.Errorf("a line is\n%s, want\n%s", line.String(), c.want)
		}
	}
}
