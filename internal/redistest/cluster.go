package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// thirds is how many masters a Cluster has, each with a third of the slots.
	thirds = 3
	// slots is the number of groups that a Cluster divides all keys into.
	slots = 16384
)

// clusterArgs make a node of a Cluster that takes a silent one for dead after
// 1 s, and goes on with the slots that still have a master.
var clusterArgs = []string{
	"--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
	"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
}

// Cluster is a Redis Cluster of three masters with a replica each, all child
// processes. Build one with [StartCluster] or [LaunchCluster].
type Cluster struct {
	// Masters and Replicas are the nodes by what they were at the beginning:
	// Replicas[i] follows Masters[i], which serves the i-th third of the slots.
	// A fail-over does not exchange them here.
	Masters, Replicas []*Server
}

// StartCluster launches a Cluster for the length of a test, see [Start].
func StartCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	c, err := LaunchCluster(Options{Args: args})
	need(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// LaunchCluster starts a Cluster and waits until every node agrees on who
// serves what, and the replicas have their masters' data. The options are those
// of each node. The caller must Close it.
func LaunchCluster(o Options) (*Cluster, error) {
	c := new(Cluster)
	err := c.launch(o)
	if err == nil {
		err = c.form()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) launch(o Options) error {
	args := slices.Concat(clusterArgs, o.Args)
	for i := range 2 * thirds {
		s, err := launch(Options{Args: args}, "")
		switch {
		case err != nil:
			return err
		case i < thirds:
			c.Masters = append(c.Masters, s)
		default:
			c.Replicas = append(c.Replicas, s)
		}
	}
	return nil
}

// form makes a Cluster of nodes that do not know each other.
func (c *Cluster) form() error {
	for i, s := range c.Masters {
		// Masters of different epochs need not settle later whose slots count.
		if _, err := s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		words := []string{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / thirds; slot < (i+1)*slots/thirds; slot++ {
			words = append(words, strconv.Itoa(slot))
		}
		if _, err := s.Do(words...); err != nil {
			return err
		}
	}
	for _, s := range c.Nodes()[1:] {
		if _, err := c.Masters[0].Do("CLUSTER", "MEET", loopback, strconv.Itoa(s.port)); err != nil {
			return err
		}
	}
	if err := c.everyNode("the nodes have not met", func(v view) bool { return len(v.nodes) == 2*thirds && !v.handshaking }); err != nil {
		return err
	}
	for i, s := range c.Replicas {
		id, err := c.Masters[i].text("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		if _, err := s.Do("CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
	}
	err := c.everyNode("the nodes do not agree", func(v view) bool { return v.ok && v.replicas == thirds })
	if err != nil {
		return err
	}
	return settle("the replicas have no link to their masters", func() bool {
		for _, s := range c.Replicas {
			if !s.linked() {
				return false
			}
		}
		return true
	})
}

// everyNode waits until all nodes see what they should.
func (c *Cluster) everyNode(wrong string, ok func(view) bool) error {
	return settle(wrong, func() bool {
		for _, s := range c.Nodes() {
			if v, err := s.view(); err != nil || !ok(v) {
				return false
			}
		}
		return true
	})
}

// view is what one node of a Cluster knows.
type view struct {
	ok          bool // all slots are served
	handshaking bool
	replicas    int
	nodes       []member
	self        member
}

// member is a line of CLUSTER NODES.
type member struct {
	id     string
	flags  []string
	epoch  int64
	ranges []string // "1-5", "7"
}

func (m member) is(flag string) bool { return slices.Contains(m.flags, flag) }

func (m member) serves(slot int) bool {
	for _, r := range m.ranges {
		first, last, found := strings.Cut(r, "-")
		if !found {
			last = first
		}
		lo, err1 := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if err1 == nil && err2 == nil && lo <= slot && slot <= hi {
			return true
		}
	}
	return false
}

func (s *Server) view() (v view, err error) {
	info, err := s.text("CLUSTER", "INFO")
	if err != nil {
		return v, err
	}
	list, err := s.text("CLUSTER", "NODES")
	if err != nil {
		return v, err
	}
	v.ok = fields(info)["cluster_state"] == "ok"
	for line := range strings.Lines(list) {
		// id, address, flags, its master, ping, pong, epoch, link, slots…
		f := strings.Fields(line)
		if len(f) < 8 {
			return v, fmt.Errorf("redistest: CLUSTER NODES: %w", errProtocol)
		}
		m := member{id: f[0], flags: strings.Split(f[2], ","), ranges: f[8:]}
		m.epoch, _ = strconv.ParseInt(f[6], 10, 64)
		v.nodes = append(v.nodes, m)
		v.handshaking = v.handshaking || m.is("handshake")
		if m.is("slave") {
			v.replicas++
		}
		if m.is("myself") {
			v.self = m
		}
	}
	return v, nil
}

// Nodes returns all nodes, the masters first.
func (c *Cluster) Nodes() []*Server {
	return slices.Concat(c.Masters, c.Replicas)
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, s := range c.Nodes() {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Slot returns the slot that a key belongs to.
func (c *Cluster) Slot(key string) (int, error) {
	for _, s := range c.Nodes() {
		if reply, err := s.Do("CLUSTER", "KEYSLOT", key); err == nil {
			if slot, ok := reply.(int64); ok {
				return int(slot), nil
			}
		}
	}
	return 0, errors.New("redistest: no node of the cluster answers")
}

// Owner returns the node that serves a slot. Each is asked about itself; should
// two claim the slot, the later to be elected is right.
func (c *Cluster) Owner(slot int) (*Server, error) {
	var owner *Server
	latest := int64(-1)
	for _, s := range c.Nodes() {
		v, err := s.view()
		if err == nil && v.self.is("master") && v.self.serves(slot) && v.self.epoch > latest {
			owner, latest = s, v.self.epoch
		}
	}
	if owner == nil {
		return nil, fmt.Errorf("redistest: nobody serves slot %d", slot)
	}
	return owner, nil
}

// Migrate moves a slot with its keys from its owner to another master, while
// clients use it. Where a key is, in between, they learn from ASK, and
// afterwards from MOVED. Keys move one by one. If step is given it is called
// before the first and after each, with the number of those that are left: while
// it runs the slot stays as it is.
func (c *Cluster) Migrate(slot int, to *Server, step func(left int)) error {
	from, err := c.Owner(slot)
	if err != nil || from == to {
		return err
	}
	name := strconv.Itoa(slot)
	fromID, err := from.text("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	toID, err := to.text("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if _, err = to.Do("CLUSTER", "SETSLOT", name, "IMPORTING", fromID); err != nil {
		return err
	}
	if _, err = from.Do("CLUSTER", "SETSLOT", name, "MIGRATING", toID); err != nil {
		return err
	}
	if err = from.moveKeys(name, to, step); err != nil {
		return err
	}
	// The new owner first, so that the slot is never without one.
	for _, s := range []*Server{to, from} {
		if _, err = s.Do("CLUSTER", "SETSLOT", name, "NODE", toID); err != nil {
			return err
		}
	}
	return nil
}

// moveKeys moves all keys of a slot.
func (s *Server) moveKeys(slot string, to *Server, step func(left int)) error {
	for {
		reply, err := s.Do("CLUSTER", "GETKEYSINSLOT", slot, "1000000")
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if step != nil {
			step(len(keys))
		}
		if len(keys) == 0 {
			return nil
		}
		key, _ := keys[0].(string)
		if _, err := s.Do("MIGRATE", loopback, strconv.Itoa(to.port), key, "0", "5000"); err != nil {
			return err
		}
	}
}

// Close kills all nodes, frozen or not.
func (c *Cluster) Close() {
	for _, s := range c.Nodes() {
		s.Close()
	}
}
