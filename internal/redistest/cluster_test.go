package redistest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

func owner(t *testing.T, c *Cluster, slot int) *Server {
	t.Helper()
	s, err := c.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func slotOf(t *testing.T, c *Cluster, key string) int {
	t.Helper()
	slot, err := c.Slot(key)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// A slot moves with its keys. Half way its old owner says ASK for those that
// have gone, later MOVED for all.
func TestClusterMigrates(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form")
	}
	t.Parallel()
	c := StartCluster(t)
	slot := slotOf(t, c, "{a}")
	from := owner(t, c, slot)
	to := c.Masters[0]
	if from == to {
		to = c.Masters[1]
	}
	const keys = 5
	for i := range keys {
		do(t, from, "SET", "{a}"+strconv.Itoa(i), "1")
	}
	var lefts []int
	asks := 0
	err := c.Migrate(slot, to, func(left int) {
		lefts = append(lefts, left)
		for i := range keys {
			_, err := from.Do("GET", "{a}"+strconv.Itoa(i))
			if err != nil && strings.Contains(err.Error(), "ASK "+strconv.Itoa(slot)+" "+to.Addr()) {
				asks++
			} else if err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(lefts, []int{5, 4, 3, 2, 1, 0}) || asks != 1+2+3+4+5 {
		t.Errorf("left to move: %v; %d times sent on", lefts, asks)
	}
	if got := owner(t, c, slot); got != to {
		t.Errorf("the slot is at %s, want %s", got.Addr(), to.Addr())
	}
	if got := do(t, to, "GET", "{a}1"); got != "1" {
		t.Errorf("the key has become %v", got)
	}
	if _, err := from.Do("GET", "{a}1"); err == nil || !strings.Contains(err.Error(), "MOVED") {
		t.Errorf("the old owner says %v", err)
	}
	if err := c.Migrate(slot, to, nil); err != nil {
		t.Errorf("moving to where it is: %v", err)
	}
}

// A master is killed: its replica takes over its slots and data, the other
// masters go on meanwhile.
func TestClusterFailsOver(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a cluster to form")
	}
	t.Parallel()
	c := StartCluster(t)
	for i, s := range c.Masters {
		if owner(t, c, i*slots/thirds) != s || owner(t, c, (i+1)*slots/thirds-1) != s {
			t.Errorf("master %d does not serve its third", i)
		}
		if s.Role() != "master" || c.Replicas[i].Role() != "slave" {
			t.Errorf("roles of pair %d: %q, %q", i, s.Role(), c.Replicas[i].Role())
		}
	}
	slot := slotOf(t, c, "a")
	victim := owner(t, c, slot)
	do(t, victim, "SET", "a", "1")
	for i, s := range c.Masters {
		if err := AwaitReplication(s, c.Replicas[i]); err != nil {
			t.Fatal(err)
		}
	}
	victim.Kill()
	if s, err := c.Owner(slot); err == nil {
		t.Errorf("%s has taken over at once", s.Addr())
	}
	for i, s := range c.Masters {
		if s == victim {
			eventually(t, "promoted", func() bool { return c.Replicas[i].Role() == "master" })
			eventually(t, "serving", func() bool { s, err := c.Owner(slot); return err == nil && s == c.Replicas[i] })
			if got := do(t, c.Replicas[i], "GET", "a"); got != "1" {
				t.Errorf("the new master has %v", got)
			}
		} else if _, err := s.Do("GET", keyOf(t, c, s)); err != nil {
			t.Errorf("a master that lives: %v", err)
		}
	}
	dirs := []string{c.Masters[0].dir, c.Replicas[2].dir}
	c.Close()
	c.Close()
	wantGone(t, dirs...)
	if _, err := c.Slot("a"); err == nil {
		t.Error("a closed cluster answers")
	}
}

// keyOf returns a key that lives on a master.
func keyOf(t *testing.T, c *Cluster, s *Server) string {
	t.Helper()
	v, err := s.view()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if key := strconv.Itoa(i); v.self.serves(slotOf(t, c, key)) {
			return key
		}
	}
	t.Fatal("no key lives there")
	return ""
}
