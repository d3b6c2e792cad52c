package redisstore

import (
	"testing"
	"time"
)

// A heartbeat counts the nodes that are alive and reads what shards know.
//
// Fault 29: every key that it writes expires, and keeps its TTL when it leaves.
func TestBeatAndLeave(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := storeOn(t, b.rdb)
		exec(t, s, &Batch{Shard: 2, Node: "n1", Seq: 1})
		for i, node := range []string{"n1", "n2", "n3", "n1"} {
			beat, err := s.Beat(ctx, node, 3*time.Second, []int{0, 2}, BeatOptions{})
			if err != nil || beat.Nodes != min(i+1, 3) {
				t.Fatalf("beat of %s: %+v, %v", node, beat, err)
			}
			if want := int64(1 - min(i%3, 1)); beat.Seqs[0] != 0 || beat.Seqs[1] != want {
				t.Errorf("seqs of %s: %v", node, beat.Seqs)
			}
			if d := beat.Now.Microseconds() - b.now(); d > 0 || d < -10e6 {
				t.Errorf("beat's time is %d µs off", d)
			}
		}
		b.everyKeyExpires()
		b.rdb.PExpire(ctx, s.Keyspace().SeqKey(2, "n1"), time.Minute)
		if _, err := s.Beat(ctx, "n1", 3*time.Second, []int{2}, BeatOptions{}); err != nil {
			t.Fatal(err)
		}
		if ttl := b.rdb.PTTL(ctx, s.Keyspace().SeqKey(2, "n1")).Val(); ttl < LedgerTTL-time.Minute {
			t.Errorf("a beat left the ledger a TTL of %v", ttl)
		}
		if err := s.Leave(ctx, "n1", []int{0, 2}); err != nil {
			t.Fatal(err)
		}
		beat, err := s.Beat(ctx, "n2", 3*time.Second, nil, BeatOptions{})
		ttl := b.rdb.PTTL(ctx, s.Keyspace().SeqKey(2, "n1")).Val()
		if err != nil || beat.Nodes != 2 || ttl <= 0 || ttl > time.Minute {
			t.Errorf("after n1 left: %+v, %v; its ledger lives for %v", beat, err, ttl)
		}
	})
}

func TestNodesExpire(t *testing.T) {
	b := onMini(t)
	s := b.store()
	for _, step := range []struct {
		node string
		want int
		wait time.Duration
	}{{"a", 1, time.Second}, {"b", 2, time.Second}, {"b", 2, time.Second}, {"b", 1, 0}} {
		beat, err := s.Beat(ctx, step.node, 3*time.Second, nil, BeatOptions{})
		if err != nil || beat.Nodes != step.want {
			t.Errorf("at %v: %+v, %v, want %d nodes", b.at, beat, err, step.want)
		}
		if f, err := s.Fleet(ctx); err != nil || f.Nodes != step.want || len(f.List) != step.want || f.List[step.want-1].Left != 3*time.Second {
			t.Errorf("at %v: %+v, %v, want %d nodes", b.at, f, err, step.want)
		}
		b.advance(step.wait)
	}
}
