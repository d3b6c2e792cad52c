package limit_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Results as JSON, and the same by both handlers of slog.
func TestResultsAsText(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("api", limit.Tokens{Burst: 20, Refill: 5, Per: time.Second}))
	refused := limit.Result{Limit: 20, RetryAfter: 1500 * time.Millisecond, ResetAfter: time.Hour + 1, Source: limit.SourceSynced}
	const refusedJSON = `{"allowed":false,"would_refuse":false,"limit":20,"remaining":0,"retry_after_seconds":1.5,"reset_after_seconds":3600.000000001,"source":"synced"`
	for _, c := range []struct {
		v    any
		want string
	}{
		{refused, refusedJSON + `}`},
		{limit.Result{Allowed: true, WouldRefuse: true, Limit: 1, Remaining: 3},
			`{"allowed":true,"would_refuse":true,"limit":1,"remaining":3,"retry_after_seconds":0,"reset_after_seconds":0,"source":"local"}`},
		{limit.Result{RetryAfter: limit.Never, ResetAfter: limit.Never, Source: limit.SourceInvalid},
			`{"allowed":false,"would_refuse":false,"limit":0,"remaining":0,"retry_after_seconds":null,"reset_after_seconds":null,"source":"invalid"}`},
		{limit.AllResult{Result: refused, By: 2}, refusedJSON + `,"by":2}`},
		{limit.AllResult{Result: refused, By: 1, Rule: rule}, refusedJSON + `,"by":1,"rule":"api"}`},
	} {
		line := "r." + strings.NewReplacer("{", "", "}", "", `"`, "", ":", "=", ",", " r.", "null", "<nil>").Replace(c.want)
		text, err := json.Marshal(c.v)
		if err != nil || string(text) != c.want {
			t.Errorf("%s, %v,\nwant %s", text, err, c.want)
		}
		var lines, object bytes.Buffer
		slog.New(slog.NewTextHandler(&lines, nil)).Info("m", "r", c.v)
		slog.New(slog.NewJSONHandler(&object, nil)).Info("m", "r", c.v)
		if _, got, _ := strings.Cut(strings.TrimSpace(lines.String()), "msg=m "); got != line {
			t.Errorf("a line has\n%s, want\n%s", got, line)
		}
		if !strings.HasSuffix(strings.TrimSpace(object.String()), `"r":`+c.want+`}`) {
			t.Errorf("a line of JSON is\n%s, want\n%s", object.String(), c.want)
		}
	}
}

func TestSourcesAsText(t *testing.T) {
	for s := range limit.SourceNotice + 1 {
		if text, err := s.MarshalText(); err != nil || string(text) != s.String() {
			t.Errorf("%v: %s, %v", s, text, err)
		}
	}
}
