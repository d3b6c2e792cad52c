package hybrid_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Every problem is named at once: nobody likes to mend options one by one.
func TestOptionsAllProblemsAtOnce(t *testing.T) {
	bad := hybrid.Options{
		MaxKeys: -1, SyncInterval: time.Hour, CommandTimeout: -1, Shards: 1025, KeyPrefix: "a{b}",
		Fallback: 9, HeartbeatInterval: time.Millisecond, MaxBackoff: time.Nanosecond,
		DegradeAfter: -1, ExpectedNodes: -1,
	}
	_, err := hybrid.New(nil, bad)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"MaxKeys", "SyncInterval", "CommandTimeout", "Shards", "KeyPrefix", "Fallback",
		"HeartbeatInterval", "MaxBackoff", "DegradeAfter", "ExpectedNodes"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not mentioned in:\n%v", field, err)
		}
	}
	bad.MaxKeys = 1<<26 + 1
	if _, err := hybrid.New(nil, bad); err == nil || !strings.Contains(err.Error(), "MaxKeys") || !strings.Contains(err.Error(), "Shards") {
		t.Errorf("too many keys, among other problems: %v", err)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.HasPrefix(line, "hybrid: ") {
			t.Errorf("not prefixed with the package: %q", line)
		}
	}
}

func TestOptionsEdges(t *testing.T) {
	for name, c := range map[string]struct {
		o  hybrid.Options
		ok bool
	}{
		"zero":                    {hybrid.Options{}, true},
		"smallest":                {hybrid.Options{MaxKeys: 1, SyncInterval: time.Millisecond, CommandTimeout: time.Millisecond, Shards: 1, KeyPrefix: "x", HeartbeatInterval: 10 * time.Millisecond, MaxBackoff: time.Millisecond, DegradeAfter: 1}, true},
		"largest":                 {hybrid.Options{SyncInterval: time.Minute, CommandTimeout: time.Minute, Shards: 1024, KeyPrefix: strings.Repeat("x", 64), HeartbeatInterval: time.Minute, MaxBackoff: time.Hour, DegradeAfter: 100, Fallback: hybrid.FailClosed, ExpectedNodes: 100_000}, true},
		"slow probes by one knob": {hybrid.Options{MaxBackoff: time.Hour}, true},
		"too many expected":       {hybrid.Options{ExpectedNodes: 100_001}, false},
		"long prefix":             {hybrid.Options{KeyPrefix: strings.Repeat("x", 65)}, false},
		"negative interval":       {hybrid.Options{SyncInterval: -1}, false},
		"keys beyond memory":      {hybrid.Options{MaxKeys: math.MaxInt}, false},
	} {
		l, err := hybrid.New(nil, c.o)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if l != nil {
			_ = l.Shutdown(bg)
		}
	}
}

// A nil pointer of a client type is a mistake, and not "without Redis".
func TestNilClientPointer(t *testing.T) {
	var rdb *redis.Client
	if l, err := hybrid.New(rdb, hybrid.Options{}); err == nil {
		_ = l.Shutdown(bg)
		t.Error("a nil *redis.Client was accepted")
	}
}

// What cannot be asked is refused for ever, counted, and changes nothing.
//
// Faults 42, 87: refused for ever, counted, said in the result and without effect.
func TestQuestionsThatCannotBeAsked(t *testing.T) {
	l := newLimiter(t, nil, hybrid.Options{})
	log := limit.Must(limit.SlidingLog("log", 5, time.Minute))
	if err := l.CheckRule(log); !errors.Is(err, limit.ErrUnsupported) || !strings.Contains(err.Error(), "remote") {
		t.Errorf("%v: want ErrUnsupported and a way out", err)
	}
	for _, r := range []*limit.Rule{nil, new(limit.Rule)} {
		if err := l.CheckRule(r); !errors.Is(err, limit.ErrNilRule) {
			t.Errorf("%v: want ErrNilRule", err)
		}
	}
	for _, r := range []*limit.Rule{longTen, longFunnel, limit.Must(limit.FixedWindow("x", 1, time.Second))} {
		if err := l.CheckRule(r); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	asked := 0
	for _, q := range []struct {
		rule *limit.Rule
		n    int64
	}{{log, 1}, {log, 0}, {nil, 1}, {new(limit.Rule), 1}, {longTen, -1}, {longTen, math.MinInt64}} {
		if l.AllowN("k", q.rule, q.n) {
			t.Errorf("%v, %d: allowed", q.rule, q.n)
		}
		if res := l.Take("k", q.rule, q.n); res.Allowed || res.RetryAfter != limit.Never || res.Source != limit.SourceInvalid {
			t.Errorf("%v, %d: %+v", q.rule, q.n, res)
		}
		asked += 2
	}
	if res := l.Peek("k", log); res.Allowed {
		t.Errorf("%+v", res)
	}
	s := l.Figures()
	if s.Invalid != uint64(asked+1) || s.Allowed.Total()+s.Denied.Total() != 0 || s.AdmittedUnits != 0 {
		t.Errorf("%d invalid, want %d: %+v", s.Invalid, asked+1, s)
	}
	wantAdmitted(t, l, "k", longTen, 20, 10) // nothing was handed back either

	var none *hybrid.Limiter
	if none.Allow("k", longTen) || new(hybrid.Limiter).Allow("k", longTen) {
		t.Error("a limiter that does not exist allows")
	}
}

func TestStrings(t *testing.T) {
	for want, got := range map[string]string{
		"fair-share":                             hybrid.FairShare.String(),
		"full-limit":                             hybrid.FullLimit.String(),
		"fail-open":                              hybrid.FailOpen.String(),
		"fail-closed":                            hybrid.FailClosed.String(),
		"fallback(7)":                            hybrid.Fallback(7).String(),
		"local-only":                             hybrid.LocalOnly.String(),
		"closed":                                 hybrid.Closed.String(),
		"mode(99)":                               hybrid.Mode(99).String(),
		"synced, 2 nodes":                        hybrid.State{Mode: hybrid.Synced, Nodes: 2}.String(),
		"synced, 3 nodes, notices down (noperm)": hybrid.State{Mode: hybrid.Synced, Nodes: 3, NoticesDown: "noperm"}.String(),
		"degraded (oom, 64 shards), 1 nodes":     hybrid.State{Mode: hybrid.Degraded, Reason: "oom", Nodes: 1, Down: 64}.String(),
		"degraded (oom), 1 nodes":                hybrid.State{Mode: hybrid.Degraded, Reason: "oom", Nodes: 1}.String(),
		"hybrid: redis is unavailable: oom":      (&hybrid.UnavailableError{Reason: "oom"}).Error(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
