package hybrid_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Nodes are listed by what they say about themselves: by default the host, the program and the
// process; nothing of that with "-"; nothing at all if they are of an older version.
func TestRealNodesHaveNames(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	o := hybrid.Options{HeartbeatInterval: 50 * time.Millisecond, MaxLag: 3 * time.Second, ExpectedNodes: 4}
	byDefault := realNode(t, srv.Addr(), o)
	o.NodeName, o.Fallback = "frontend-7", hybrid.FullLimit
	named := realNode(t, srv.Addr(), o)
	o.NodeName, o.Fallback = "-", hybrid.FailClosed
	unnamed := realNode(t, srv.Addr(), o)
	old, err := redisstore.NewStore(dial(t, srv.Addr()), redisstore.Options{})
	if err == nil {
		_, err = old.Beat(bg, "old", time.Minute, []int{0}, redisstore.BeatOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]inside.Node{}
	eventually(t, "all nodes are synced, by what they say", func() bool {
		nodes, err := named.Nodes(bg)
		if err != nil {
			t.Fatal(err)
		}
		synced := 0
		for _, n := range nodes {
			list[n.ID] = n
			if n.Mode == hybrid.Synced.String() {
				synced++
			}
		}
		return len(nodes) == 4 && synced == 3 && list[byDefault.ID()].Share == 0.25
	})
	host, _ := os.Hostname()
	program := filepath.Base(os.Args[0])
	is := list[byDefault.ID()]
	if !strings.HasPrefix(is.Name, host+"/") || !strings.HasSuffix(is.Name, fmt.Sprintf("[%d]", os.Getpid())) || is.Program != program || is.Version == "" {
		t.Errorf("by default: %+v", is)
	}
	if is.Lag < 3*time.Second || is.Lag > 5*time.Second || is.Fallback != hybrid.FairShare.String() || time.Since(is.Since) > time.Minute || time.Since(is.Started) > time.Minute || is.Since.Before(is.Started.Add(-time.Millisecond)) || is.Gone <= 0 {
		t.Errorf("by default: %+v", is)
	}
	if is := list[named.ID()]; is.Name != "frontend-7" || is.Share != 1 || is.Fallback != hybrid.FullLimit.String() {
		t.Errorf("a name: %+v", is)
	}
	if is := list[unnamed.ID()]; is.Name != "" || is.Program != "" || is.Version == "" || is.Share != 0 {
		t.Errorf("no name: %+v", is)
	}
	if is := list["old"]; is.Name != "" || is.Version != "" || is.Gone <= 0 {
		t.Errorf("of an older version: %+v", is)
	}
	if err := unnamed.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has left no trace", func() bool {
		return dial(t, srv.Addr()).Exists(bg, old.Keyspace().AboutKey(unnamed.ID())).Val() == 0
	})
	srv.Kill()
	if nodes, err := named.Nodes(bg); err == nil || len(nodes) != 0 {
		t.Errorf("without Redis: %v, %v", nodes, err)
	}
}

func TestNodeNames(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "-": true, "web 1 (blue)": true, "Zürich": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "a\nb": false, "\x1b[2J": false, "\xff": false} {
		l, err := hybrid.New(nil, hybrid.Options{NodeName: name})
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "NodeName") {
			t.Errorf("%q: %v", name, err)
		}
		if nodes, err := l.Nodes(bg); nodes != nil || err != nil { // without Redis there is none
			t.Errorf("%v, %v", nodes, err)
		}
		_ = l.Close()
	}
}

// A program or a host may have any name: it is no reason not to start.
func TestDefaultNamesArePrintable(t *testing.T) {
	for name, want := range map[string]string{"api": "api", "my\u00a0app": "my?app", "\x1b[2J": "?[2J", "\xff\u200b": "??", strings.Repeat("x", 99): strings.Repeat("x", 64),
		strings.Repeat("\U0001f680", 32): strings.Repeat("\U0001f680", 16), strings.Repeat("é", 33): strings.Repeat("é", 32)} {
		args := os.Args
		os.Args = []string{"/bin/" + name}
		l, err := hybrid.New(nil, hybrid.Options{})
		os.Args = args
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		_ = l.Close()
		if is := hybrid.Printable(name, 64); is != want {
			t.Errorf("%q: %q, want %q", name, is, want)
		}
	}
}
