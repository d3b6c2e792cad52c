package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The fleet is what heartbeats have said.
func TestFleet(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		keys := b.store().Keyspace()
		s := b.store()
		if f, err := s.Fleet(ctx); err != nil || f.Nodes != 0 || len(f.Layouts) != 0 {
			t.Errorf("nobody: %+v, %v", f, err)
		}
		for i := range maxNodesListed + 5 {
			if _, err := b.store().Beat(ctx, fmt.Sprintf("n%d", i), time.Hour+time.Duration(i)*time.Second, nil, BeatOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		f, err := s.Fleet(ctx)
		if err != nil || f.Nodes != maxNodesListed+5 || len(f.List) != maxNodesListed || len(f.Layouts) != 1 || f.Layouts[0].Name != keys.Layout() {
			t.Fatalf("%d of %d nodes, %v, %v", len(f.List), f.Nodes, f.Layouts, err)
		}
		if d := f.Now.Microseconds() - b.now(); d > 0 || d < -10e6 {
			t.Errorf("Redis' time is %d µs off", d)
		}
		if last := f.List[maxNodesListed-1]; last.Name != fmt.Sprintf("n%d", maxNodesListed+4) || last.Left > 2*time.Hour || last.Left < time.Hour {
			t.Errorf("the last node: %+v", last)
		}
		b.rdb.Del(ctx, keys.NodesKey())
		b.set(keys.NodesKey(), "garbage")
		var broken *limit.KeyError
		if _, err := s.Fleet(ctx); !errors.As(err, &broken) || broken.Reason != "WRONGTYPE" {
			t.Errorf("a broken list: %v", err)
		}
	})
}

// What a node says about itself goes beside its heartbeat. It is there for as long as the node counts
// as alive, and what others may have written in its place harms nothing.
func TestWhatNodesSayAboutThemselves(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		about := About{Name: "web/api[1]", Program: "api", Version: "v1.2.3", Mode: "synced", Since: 7, Started: 5, Lag: 1000, Fallback: "fair-share", Share: 0.5}
		for node, a := range map[string]*About{"old": nil, "new": &about} {
			if _, err := s.Beat(ctx, node, time.Minute, []int{0}, BeatOptions{Offer: "x1", EchoChannel: "echo", Echo: "1", About: a}); err != nil {
				t.Fatal(err)
			}
		}
		b.everyKeyExpires()
		read := func() map[string]About {
			f, err := s.Fleet(ctx)
			if err != nil || len(f.List) != 2 {
				t.Fatalf("%+v, %v", f, err)
			}
			return map[string]About{f.List[0].Name: f.List[0].About, f.List[1].Name: f.List[1].About}
		}
		if is := read(); is["new"] != about || is["old"] != (About{}) {
			t.Errorf("%+v", is)
		}
		key := s.Keyspace().AboutKey("old")
		for _, text := range []string{"", "garbage", `{"name": 5}`, `{"name": "x"`, `[]`, `{"share": 1e999}`, `"` + strings.Repeat("x", maxAboutBytes) + `"`} {
			b.set(key, text)
			if is := read(); is["old"] != (About{}) || is["new"] != about {
				t.Errorf("%.40q: %+v", text, is)
			}
		}
		b.set(key, `{"name": "`+strings.Repeat("y", 1000)+`", "colour": "of a later version", "lag_ms": -1}`)
		if is := read()["old"]; len(is.Name) > 210 || is.Lag != -1 {
			t.Errorf("%+v", is)
		}
		b.rdb.Del(ctx, key)
		b.rdb.RPush(ctx, key, "a list")
		if is := read(); is["old"] != (About{}) || is["new"] != about {
			t.Errorf("a list: %+v", is)
		}
		if err := s.Leave(ctx, "new", nil); err != nil {
			t.Fatal(err)
		}
		if left := b.rdb.PTTL(ctx, s.Keyspace().AboutKey("new")).Val(); left > time.Millisecond {
			t.Errorf("what it has said stays for %v after it has left", left)
		}
	})
}
