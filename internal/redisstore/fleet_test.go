package redisstore

import (
	"errors"
	"fmt"
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

func TestNodesThatHaveGoneAreNotListed(t *testing.T) {
	b := onMini(t)
	s := b.store()
	for i, ttl := range []time.Duration{3 * time.Second, time.Minute} {
		if _, err := b.store().Beat(ctx, fmt.Sprint("n", i), ttl, nil, BeatOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.advance(4 * time.Second)
	if f, err := s.Fleet(ctx); err != nil || f.Nodes != 1 || f.List[0].Name != "n1" || f.List[0].Left != 56*time.Second {
		t.Errorf("%+v, %v", f, err)
	}
}
