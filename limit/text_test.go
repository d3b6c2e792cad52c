package limit_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Results as JSON, and the same by both handlers of slog.
func TestResultsAsText(t *testing.T) {
	rule := limit.Must(limit.TokenBucket("api", 5, time.Second, 20))
	refused := limit.Result{Limit: 20, RetryAfter: 1500 * time.Millisecond, ResetAfter: time.Hour + 1, Source: limit.SourceSynced}
	const refusedJSON = `{"allowed":false,"would_refuse":false,"limit":20,"remaining":0,"retry_after_seconds":1.5,"reset_after_seconds":3600.000000001,"source":"synced"`
	for _, c := range []struct {
		v    any
		back any
		want string
	}{
		{refused, new(limit.Result), refusedJSON + `}`},
		{limit.Result{Allowed: true, WouldRefuse: true, Limit: 1, Remaining: 3}, new(limit.Result),
			`{"allowed":true,"would_refuse":true,"limit":1,"remaining":3,"retry_after_seconds":0,"reset_after_seconds":0,"source":"local"}`},
		{limit.Result{RetryAfter: limit.Never, ResetAfter: limit.Never, Source: limit.SourceInvalid}, new(limit.Result),
			`{"allowed":false,"would_refuse":false,"limit":0,"remaining":0,"retry_after_seconds":null,"reset_after_seconds":null,"source":"invalid"}`},
		{limit.AllResult{Result: refused, By: 2}, new(limit.AllResult), refusedJSON + `,"by":2}`},
		{limit.AllResult{Result: refused, By: 1, Rule: rule}, nil, refusedJSON + `,"by":1,"rule":"api"}`},
	} {
		line := "r." + strings.NewReplacer("{", "", "}", "", `"`, "", ":", "=", ",", " r.", "null", "<nil>").Replace(c.want)
		text, err := json.Marshal(c.v)
		if err != nil || string(text) != c.want {
			t.Errorf("%s, %v,\nwant %s", text, err, c.want)
		}
		if c.back != nil {
			if err := json.Unmarshal(text, c.back); err != nil || !reflect.DeepEqual(reflect.ValueOf(c.back).Elem().Interface(), c.v) {
				t.Errorf("%+v came back as %+v, %v", c.v, c.back, err)
			}
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

func TestResultsOfText(t *testing.T) {
	var res limit.Result
	if err := json.Unmarshal([]byte(`{"allowed":true,"retry_after_seconds":1e300}`), &res); err != nil || !res.Allowed || res.RetryAfter != limit.Never || res.ResetAfter != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	for _, bad := range []string{`{"source":"nobody"}`, `{"source":7}`, `{"retry_after_seconds":"1s"}`, `[]`} {
		if err := json.Unmarshal([]byte(bad), new(limit.Result)); err == nil {
			t.Errorf("%s was read", bad)
		}
		if err := json.Unmarshal([]byte(bad), new(limit.AllResult)); err == nil {
			t.Errorf("%s was read as that of several", bad)
		}
	}
	limittest.CheckError(t, "a hostile source", new(limit.Source).UnmarshalText([]byte(limittest.HostileKey())), 100)
	for s := range limit.SourceNotice + 1 {
		text, err := s.MarshalText()
		var back limit.Source
		if err != nil || string(text) != s.String() || back.UnmarshalText(text) != nil || back != s {
			t.Errorf("%v: %s came back as %v, %v", s, text, back, err)
		}
	}
}
