package hybrid_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// What is written as JSON can be read by people, and by programs.
func TestJSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 7, time.UTC)
	for _, c := range []struct {
		v    any
		want string
	}{
		{hybrid.State{Mode: hybrid.Synced, Since: at, Nodes: 3},
			`{"Mode":"synced","Since":"2026-03-01T12:00:00.000000007Z","Nodes":3,"Down":0}`},
		{hybrid.State{Mode: hybrid.Degraded, Since: at, Reason: "oom", Err: errors.New("OOM command not allowed"), Nodes: 1, Down: 64},
			`{"Mode":"degraded","Since":"2026-03-01T12:00:00.000000007Z","Reason":"oom","Err":"OOM command not allowed","Nodes":1,"Down":64}`},
		{hybrid.State{Mode: hybrid.Synced, Since: at, Nodes: 3, NoticesDown: "noperm"},
			`{"Mode":"synced","Since":"2026-03-01T12:00:00.000000007Z","Nodes":3,"Down":0,"NoticesDown":"noperm"}`},
		{hybrid.State{Mode: hybrid.LocalOnly, Nodes: 1}, `{"Mode":"local-only","Nodes":1,"Down":0}`},
		{hybrid.Event{Kind: hybrid.EventQuarantined, Time: at, Reason: "redis cannot use the key", Key: "a\nb", Err: errors.New("WRONGTYPE")},
			`{"Kind":"key-quarantined","Time":"2026-03-01T12:00:00.000000007Z","Reason":"redis cannot use the key","Key":"a\nb","Err":"WRONGTYPE"}`},
		{hybrid.FailOpen, `"fail-open"`},
	} {
		text, err := json.Marshal(c.v)
		if err != nil || string(text) != c.want {
			t.Errorf("%s, %v,\nwant %s", text, err, c.want)
		}
	}
	var f hybrid.Fallback
	if err := json.Unmarshal([]byte(`"fail-open"`), &f); err != nil || f != hybrid.FailOpen {
		t.Errorf("%v, %v", f, err)
	}
	if err := json.Unmarshal([]byte(`"fail-ajar"`), &f); err == nil {
		t.Errorf("an unknown policy was read as %v", f)
	}
}

func TestEventAsText(t *testing.T) {
	e := hybrid.Event{Kind: hybrid.EventDataLost, Reason: "gone", Key: "k\n", Err: errors.New("why")}
	if got, want := e.String(), `data-lost: gone, key "k\n": why`; got != want || hybrid.EventKind(99).String() != "event(99)" {
		t.Errorf("%s, want %s", got, want)
	}
}
