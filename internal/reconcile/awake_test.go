package reconcile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// awake returns a machine without counters in sync with one server, which has told it of so many nodes
// and of the channel of notices.
func awake(t *testing.T, shards, nodes int) *Machine {
	t.Helper()
	ks, err := redisstore.NewKeyspace("p", shards)
	if err != nil {
		t.Fatal(err)
	}
	const ms = int64(time.Millisecond)
	cfg := Config{
		SyncInterval: 100 * ms, MaxLag: 1000 * ms, CommandTimeout: 250 * ms,
		HeartbeatInterval: 1000 * ms, MinBackoff: 100 * ms, MaxBackoff: 2000 * ms,
		DegradeAfter: 2, Notices: true, Single: true,
	}
	rng, names := rand.New(rand.NewPCG(1, 2)), 0
	ids := Identities{Nonce: rng.Uint64, Name: func() string { names++; return fmt.Sprint("node", names) }}
	link := counter.NewLink(counter.Pace{Interval: time.Duration(cfg.SyncInterval), MaxLag: time.Duration(cfg.MaxLag)}, shards, ks.Shard)
	link.SetNotices(1, ks.NoticeID)
	c := New(Parts{Config: cfg, Rand: rng, IDs: ids, Link: link, Keys: ks, Each: func(func(*counter.Counter) bool) {}, Stats: &Stats{}})
	c.Place(slices.Repeat([]string{"server0"}, shards))
	now := int64(1_700_000_000) * int64(time.Second)
	for range 3 {
		c.beat(now, nodes)
		now += c.cfg.HeartbeatInterval
	}
	if c.state.Mode != Synced || c.members.count != int64(nodes) || !c.notices.receives() {
		t.Fatalf("%v, %d nodes, hears: %v", c.state, c.members.count, c.notices.receives())
	}
	return c
}

// beat lets the machine send a heartbeat, and gives it the answer and, as its subscription, the echo
// a millisecond later. The clock of Redis is a minute ahead.
func (c *Machine) beat(now int64, nodes int) {
	for _, e := range slices.Clone(c.Step(now, now, Tick{})) {
		b, ok := e.(Beat)
		if !ok {
			continue
		}
		got := redisstore.Beat{
			Nodes: nodes, Now: time.Duration(now) + time.Minute, Channel: "channel",
			Seqs: make([]int64, len(b.Shards)), Errs: make([]error, len(b.Shards)),
			Times: slices.Repeat([]time.Duration{time.Duration(now) + time.Minute}, len(b.Shards)),
		}
		now += int64(time.Millisecond)
		c.Step(now, now, BeatAnswer{ID: b.ID, Recv: now, Beat: got})
		c.Step(now, now, Received{Confirmed: true, Echo: b.Echo})
		c.Step(now, now, Published{ID: c.notices.publishing})
	}
}
