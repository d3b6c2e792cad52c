package sim

import "slices"

// pause stops the process for a while, as a garbage collection does or, if its
// clocks stop too, a suspended machine.
func (n *simNode) pause(d int64, clocks bool) {
	if n.s.now <= n.paused {
		return
	}
	if clocks {
		n.s.oracle.stood(n, d)
	}
	n.paused = n.s.now + d
	n.s.oracle.slow = max(n.s.oracle.slow, n.paused)
	if clocks {
		n.frozen = n.s.now
		n.s.after(d-1, func() { n.asleep, n.frozen = n.asleep+d-1, 0 })
		n.s.oracle.jumped(n)
	}
}

// jump sets the node's clock by d.
func (n *simNode) jump(d int64) {
	n.time()
	n.clock.set(n.pace(), d, n.clock.ppm, false)
	if nb := n.s.oracle.nodes[n]; d < 0 { // it stands still until it has caught up
		n.s.oracle.stood(n, -d+ms)
	} else if nb.stalled -= d; n.frozen != 0 {
		nb.stalled = max(nb.stalled, n.paused)
	}
	n.s.oracle.jumped(n)
}

// crash ends the process with all it has in memory.
func (n *simNode) crash() {
	n.dead = true
	n.s.nodes = slices.DeleteFunc(n.s.nodes, func(o *simNode) bool { return o == n })
	n.s.gone = append(n.s.gone, n)
	n.s.fleet.ended(n)
}

// twin starts a process that goes by the name and the numbers of another, as if
// copied from it when it had last reported everything. Nothing was admitted since.
func (n *simNode) twin() *simNode {
	t := n.s.addNode(Options{})
	seqs := map[int]int64{}
	for i, from := range n.look().Shards {
		if from.Node == n.core.Node() {
			seqs[i] = from.Acked
		}
	}
	t.core.Resume(n.core.Node(), seqs)
	t.looked = false
	return t
}

// stood notes that a node's clock stands still for so long from now on, or from when it
// would go on. For its counters no time passes: what leaks there leaks so much later.
func (o *nodeOracle) stood(n *simNode, d int64) {
	nb := o.nodes[n]
	nb.stalled = max(nb.stalled, o.s.now) + d
	if n.frozen != 0 {
		nb.stalled = max(nb.stalled, n.paused+d)
	}
	o.late += d
	o.s.fleet.stalls[n.id] = append(o.s.fleet.stalls[n.id], clockJump{nb.stalled, d})
	for _, sh := range nb.shares {
		sh.top, sh.latest = sh.top+float64(d), sh.latest+float64(d)
	}
}
