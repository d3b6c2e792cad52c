package sim

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// joiningRule is one whose units all count until the end of a test.
var joiningRule = limit.Must(limit.FixedWindow("w", 50, time.Hour))

// hotKey asks nodes for a key in turn, so many times a second in all, until nobody has admitted a unit for
// three lags. It returns how many units were admitted.
func (s *sim) hotKey(nodes []*simNode, key string, perSecond int) (admitted int64) {
	pause := time.Second / time.Duration(perSecond)
	for quiet, i := time.Duration(0), 0; quiet < 3*s.opt.MaxLag; i++ {
		quiet += pause
		if nodes[i%len(nodes)].take(key, joiningRule, 1).Allowed {
			admitted, quiet = admitted+1, 0
		}
		s.run(pause)
	}
	return admitted
}

// hotKeys returns the most units that nodes have admitted of one key in a world without faults, over some
// seeds. begin makes the world, and returns the nodes that are asked.
func hotKeys(t *testing.T, perSecond int, begin func(s *sim) []*simNode) (most int64) {
	t.Helper()
	for seed := range uint64(10) {
		s := emptySim(t, seed, Options{Shards: 1}, 1, []*limit.Rule{joiningRule})
		s.oracle.loose, s.far = true, smallWait
		s.withNotices()
		most = max(most, s.hotKey(begin(s), "hot", perSecond))
	}
	return most
}

// A fleet that starts admits of its first hot key about what a fleet that runs does: each node reports as if
// it was one of many, until it has counted all that have started.
//
// Fault 109: a fleet starts at once, or within a second, on a key that is asked at once.
func TestFleetStartsOnAHotKey(t *testing.T) {
	for _, size := range []int{4, 10, 30} {
		for _, perSecond := range []int{50, 200, 1000} {
			for name, pause := range map[string]time.Duration{"at once": 0, "within a second": time.Second / time.Duration(size)} {
				most := hotKeys(t, perSecond, func(s *sim) []*simNode {
					for range size {
						s.addNode(Options{})
						s.run(pause)
					}
					return s.nodes
				})
				t.Logf("%d nodes start %s, %d checks a second: %d of 50", size, name, perSecond, most)
				if most > 53 {
					t.Errorf("%d nodes start %s, %d checks a second: %d of 50", size, name, perSecond, most)
				}
			}
		}
	}
}

// Nodes that start one after another, on a key that is used up meanwhile, admit a few units each: those that
// are asked until the first answer of Redis. They ask at once, because they have missed the notice.
//
// Fault 109: a fleet starts under load.
func TestFleetStartsUnderLoad(t *testing.T) {
	for _, row := range []struct{ size, perSecond int }{{4, 200}, {4, 1000}, {10, 500}, {30, 1000}} {
		most := int64(0)
		for seed := range uint64(10) {
			s := emptySim(t, seed, Options{Shards: 1}, 1, []*limit.Rule{joiningRule})
			s.oracle.loose, s.far = true, smallWait
			s.withNotices()
			pause, each := time.Second/time.Duration(row.perSecond), 100*time.Millisecond
			admitted := int64(0)
			for i := 0; len(s.nodes) < row.size || i < row.perSecond; i++ {
				if time.Duration(i)*pause >= each*time.Duration(len(s.nodes)) && len(s.nodes) < row.size {
					s.addNode(Options{})
				}
				if n := s.nodes[i%len(s.nodes)]; n.take("hot", joiningRule, 1).Allowed {
					admitted++
				}
				s.run(pause)
			}
			most = max(most, admitted)
		}
		t.Logf("%d nodes, %d checks a second: %d of 50", row.size, row.perSecond, most)
		// 53 as of nodes that start at once, and one unit of each that comes later.
		if most > 53+int64(row.size-1) {
			t.Errorf("%d nodes start under load, %d checks a second: %d of 50", row.size, row.perSecond, most)
		}
	}
}

// Nodes that join a fleet of one or two greet it. So it need not hear the list again to know that it is not
// alone, and reports what it had hidden.
//
// Fault 109: a fleet grows while a key is hot.
func TestFleetGrowsOnAHotKey(t *testing.T) {
	for _, before := range []int{1, 2} {
		for _, asked := range []bool{true, false} {
			most := hotKeys(t, 500, func(s *sim) []*simNode {
				for range before {
					s.addNode(Options{})
				}
				s.run(3500 * time.Millisecond)
				for i := 0; asked && i < 20; i++ {
					s.nodes[0].take("hot", joiningRule, 1)
					if i == 0 { // it is reported at once, the others would be in a second
						s.run(300 * time.Millisecond)
					}
				}
				for range 4 {
					s.addNode(Options{})
				}
				s.run(20 * time.Millisecond)
				if asked {
					return s.nodes[before:]
				}
				return s.nodes
			})
			if asked { // which admitted 20 of them before the others were asked
				most += 20
			}
			t.Logf("%d nodes become %d, units hidden: %v: %d of 50", before, before+4, asked, most)
			if most > 53 {
				t.Errorf("%d nodes become %d, units hidden: %v: %d of 50", before, before+4, asked, most)
			}
		}
	}
}

// Without notices a node knows after two heartbeats how many there are.
//
// Fault 109: the same without notices.
func TestFleetStartsWithoutNotices(t *testing.T) {
	for _, size := range []int{4, 10, 30} {
		most := int64(0)
		for seed := range uint64(10) {
			s := emptySim(t, seed, Options{Shards: 1}, 1, []*limit.Rule{joiningRule})
			s.oracle.loose, s.far = true, smallWait
			for range size {
				s.addNode(Options{})
			}
			starting := s.hotKey(s.nodes, "hot", 200)
			s.run(3 * time.Second)
			most = max(most, starting-s.hotKey(s.nodes, "hot later", 200))
		}
		if most > 4 {
			t.Errorf("%d nodes admit %d units more of a limit of 50 when they start than later", size, most)
		}
	}
}

// A node that starts assumes many nodes only until it has heard who else there is: some milliseconds.
func TestJoiningEnds(t *testing.T) {
	s := emptySim(t, 1, Options{Shards: 1}, 1, []*limit.Rule{joiningRule})
	s.withNotices()
	for range 4 {
		s.addNode(Options{})
	}
	s.run(30 * time.Millisecond)
	for _, n := range s.nodes {
		if got := n.link.Nodes(); got < 4 || got > 7 { // each greeting may come after the list that has the node
			t.Errorf("after 30 ms %s reports as one of %d nodes", n.name, got)
		}
	}
	s.run(2 * time.Second)
	for _, n := range s.nodes {
		if got := n.link.Nodes(); got != 4 {
			t.Errorf("%s reports as one of %d nodes", n.name, got)
		}
	}
}
