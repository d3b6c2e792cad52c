package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Worlds of different layouts on one Redis: their processes use the same prefix, and
// another number of shards, or another version of what is kept in Redis.

// beside returns a world without nodes that lives at the same time as s, on the same Redis.
func (s *sim) beside(o Options, version string) *sim {
	b := emptySim(s.t, s.seed, o, len(s.servers), s.rules)
	b.simTime, b.version, b.oracle.loose = s.simTime, version, true
	b.born = 1000 // so that no process has the name of one of the others
	for i, v := range b.servers {
		v.model, v.clock = s.servers[i].model, s.servers[i].clock
	}
	b.redis = b.servers[0].model
	return b
}

// leave ends a node as Close does when it has nothing to report.
func (n *simNode) leave() {
	if n.unsynced() != 0 {
		n.s.failf("%s leaves with %d units that Redis does not know of", n.name, n.unsynced())
	}
	delete(n.s.redis.sets[n.s.keyspace().NodesKey()].members, n.core.Node())
	n.crash()
}

// apart returns keys that none of the worlds keeps in a shard of the same number as
// another, of which one name in Redis would be the same.
func (s *sim) apart(b *sim, count int) (keys []string) {
	for i := 0; len(keys) < count; i++ {
		key := fmt.Sprint("key", i)
		if s.version != b.version || s.keyspace().Shard(key) != b.keyspace().Shard(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// data describes what Redis keeps for a world, whatever it keeps for others.
func (s *sim) data() string {
	var b strings.Builder
	m := s.redis
	for _, k := range slices.Sorted(maps.Keys(s.oracle.index)) {
		if w := m.windows[k]; w != nil {
			fmt.Fprintln(&b, k, *w)
		}
		if f := m.leaky[k]; f != nil {
			fmt.Fprintln(&b, k, *f)
		}
	}
	var ledgers []string
	for _, n := range slices.Concat(s.nodes, s.gone) {
		for shard := range s.opt.Shards {
			ledgers = append(ledgers, fmt.Sprint(n.name, shard, m.ledger[ledgerKey{shard, n.core.Node()}], m.applied[n.name]))
		}
	}
	slices.Sort(ledgers)
	fmt.Fprintln(&b, strings.Join(ledgers, "\n"))
	if set := m.sets[s.keyspace().NodesKey()]; set != nil {
		fmt.Fprintln(&b, *set)
	}
	return b.String()
}

// sideBySide plays a fleet, and if there is one, another beside it, through a loss of all
// data, and an upgrade: the nodes of the first leave one by one as others of the second
// come. It returns what Redis keeps for the first at some times.
func sideBySide(t *testing.T, o Options, version string, check bool) (data []string) {
	const old, first = 3, 2 // nodes of each
	rules := []*limit.Rule{limit.Must(limit.SlidingWindow("w", 1000, time.Minute)), limit.Must(limit.Funnel("f", 1000, 1000, time.Minute))}
	a := emptySim(t, 1, Options{Shards: 4}, 1, rules)
	a.oracle.loose = true
	b := a.beside(o, version)
	a.calls, b.calls = rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 2))
	worlds := []*sim{a, b}
	keys := a.apart(b, 12)
	use := func(d time.Duration) {
		for end := a.now + int64(d); a.now < end; {
			a.run(10 * time.Millisecond)
			for _, s := range worlds {
				for _, n := range s.nodes {
					n.take(keys[s.calls.IntN(len(keys))], rules[s.calls.IntN(2)], 1)
				}
			}
		}
	}
	told := func(when string, a, b *sim) {
		t.Helper()
		for _, n := range a.nodes {
			st, others := n.core.State(), 0
			if len(b.nodes) > 0 {
				others = 1
			}
			if st.Mode != reconcile.Synced || st.Nodes != len(a.nodes) || n.stats.Mismatches.Load() != int64(others) || strings.Contains(st.Reason, b.layout()) != (others > 0) || others == 0 && st.Reason != "" {
				t.Errorf("%s: %s says %v, %d mismatches; %d nodes of its layout are there, %d of %q", when, n.name, st, n.stats.Mismatches.Load(), len(a.nodes), len(b.nodes), b.layout())
			}
			events := slices.DeleteFunc(slices.Clone(n.events), func(e reconcile.Incident) bool { return e.Kind != reconcile.Mismatch })
			if len(events) != 1 || !strings.Contains(events[0].Reason, b.layout()) {
				t.Errorf("%s: %s has told of the others %d times: %v", when, n.name, len(events), events)
			}
			if n.stats.BadReplies.Load()+n.stats.Quarantined.Load()+n.stats.Renames.Load() > 0 {
				t.Errorf("%s: %s took something for its own: %d bad replies, %d keys set aside, %d new names", when, n.name,
					n.stats.BadReplies.Load(), n.stats.Quarantined.Load(), n.stats.Renames.Load())
			}
		}
	}
	at := func(when string) {
		t.Helper()
		data = append(data, a.data())
		if check {
			told(when, a, b)
			told(when, b, a)
		}
	}
	for range old {
		a.addNode(Options{})
	}
	for range first {
		if check {
			b.addNode(Options{})
		}
	}
	use(8 * time.Second)
	at("at first")
	for _, s := range worlds {
		s.servers[0].wipe()
	}
	use(8 * time.Second)
	at("after a loss")
	for len(a.nodes) > 0 {
		// A key that no caller uses for a lag and two ticks is reported.
		a.run(1500 * time.Millisecond)
		a.nodes[0].leave()
		if check {
			b.addNode(Options{})
		}
		use(8 * time.Second)
		at(fmt.Sprint("when ", len(a.nodes), " are left"))
	}
	for _, s := range worlds {
		s.run(5 * time.Second)
		for _, n := range slices.Concat(s.nodes, s.gone) {
			if got := s.redis.applied[n.name]; got != n.admitted {
				t.Errorf("%s has admitted %d units, Redis has booked %d", n.name, n.admitted, got)
			}
		}
	}
	return data
}

// Two versions, or fleets with different numbers of shards, use one Redis and do not count
// together. Each says so, counts nodes of its own kind, and goes on as if it were alone.
//
// Fault 76: through a loss of all data, and through an upgrade of one node after the other.
func TestTwoLayoutsSideBySide(t *testing.T) {
	for name, c := range map[string]struct {
		o       Options
		version string
	}{
		"other shards":  {Options{Shards: 3}, ""},
		"other version": {Options{Shards: 4}, ":next"},
	} {
		t.Run(name, func(t *testing.T) {
			with := sideBySide(t, c.o, c.version, true)
			alone := sideBySide(t, c.o, c.version, false)
			for i := range alone {
				if with[i] != alone[i] {
					t.Errorf("step %d: Redis has\n%s\nand without others\n%s", i, with[i], alone[i])
				}
			}
		})
	}
}
