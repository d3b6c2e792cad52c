package reconcile

import "slices"

// server is one server of Redis: the only one, or a master of a Cluster. Health belongs to
// the server, because a fault of the server affects all of its shards.
type server struct {
	name      string // its address; empty for a shard whose server is unknown
	shards    []int  // the shards that it holds
	health    health
	rounds    round // of exchanges that it did not answer
	bookedAt  int64 // when it last answered a batch, on the timer clock
	offset    offsetFilter
	load      *load
	nextShard int      // index of the shard that pick looks at first, so that each has its turn
	answers   []answer // of the exchange that exchangeEnded handles
}

// load bounds what is under way to a server. Shards whose server is unknown share one load,
// or keep that of the server that they were on: they may all be on the same server.
type load struct {
	budget   budget
	distance distance
	slots    int    // how many more pipelines may be started
	paceAt   int64  // no pipeline with what was missed in an outage starts before this
	paced    uint64 // id of such a pipeline under way; 0: none
}

// health is whether a server can be reached.
type health uint8

const (
	starting health = iota // it has not answered yet
	up
	down
	trying // it was down and has answered a probe; it may still refuse batches
)

// round counts failed exchanges. Those that were under way at the same time count as one: a
// server that stalls once fails all of them.
type round struct {
	fails int
	at    int64 // when the latest was counted, on the timer clock
	since int64 // when the first was sent, on the timer clock
}

// failed counts an exchange that was sent at began and has failed at now.
func (r *round) failed(began, now int64) {
	if r.fails == 0 {
		r.since = began
	}
	if began >= r.at || r.fails == 0 {
		r.fails, r.at = r.fails+1, now
	}
}

// answer is how an exchange has ended for one shard.
type answer struct {
	shard int
	err   error
	list  bool // it is about the list of nodes, which is on the server of that shard
	waits bool // a flight had no answer in time, and is sent again with a longer deadline
	spent bool // a flight had no answer within the longest deadline
}

func (a answer) worked() bool { return a.err == nil }

// newLoad returns the load of a server to which nothing is under way.
func newLoad(cfg *Config) *load {
	return &load{budget: newBudget(cfg.CommandTimeout), slots: maxPipes}
}

// joins reports whether a shard of v may move to another server because the client says
// that it is there. If the clocks of the two differ, what the client says is out of date.
func (v *server) joins(to *server) bool {
	return v.health == to.health && (!v.offset.known || !to.offset.known || v.offset.agrees(&to.offset))
}

// free reports whether another pipeline may be started. Pipelines with what was missed in
// an outage are sent one at a time.
func (l *load) free(missed bool) bool { return l.slots > 0 && (!missed || l.paced == 0) }

// Place updates on which servers the shards are. addrs holds the address of each shard's server, empty if
// it is unknown. A shard whose address has changed moves to the server with that address if the two have
// the same health and clock. Else it becomes a server of its own for now.
func (c *Machine) Place(addrs []string) {
	for i := range min(len(addrs), len(c.shards)) {
		from := c.shards[i].server
		if addrs[i] == from.name || addrs[i] == "" {
			continue
		}
		k := slices.IndexFunc(c.servers, func(v *server) bool { return v.name == addrs[i] })
		switch {
		case k < 0: // a replica was promoted, or the server is new
			v := c.isolate(i)
			bounds := *v.load
			bounds.slots, bounds.paced = maxPipes, 0
			v.name, v.load = addrs[i], &bounds
		case from.joins(c.servers[k]):
			c.move(i, c.servers[k])
		default:
			c.isolate(i)
		}
	}
}

// isolate makes a shard a server of its own, with the health of the server that it was on.
func (c *Machine) isolate(shard int) *server {
	from := c.shards[shard].server
	if len(from.shards) == 1 {
		from.name = ""
		return from
	}
	v := &server{health: from.health, rounds: from.rounds, bookedAt: from.bookedAt, offset: from.offset, load: from.load}
	c.servers = append(c.servers, v)
	c.move(shard, v)
	return v
}

// move puts a shard on another server. Its counters follow the clock of that server from now on.
func (c *Machine) move(shard int, to *server) {
	from := c.shards[shard].server
	from.shards = slices.DeleteFunc(from.shards, func(i int) bool { return i == shard })
	if len(from.shards) == 0 {
		c.servers = slices.DeleteFunc(c.servers, func(v *server) bool { return v == from })
	}
	to.shards = append(to.shards, shard)
	slices.Sort(to.shards)
	c.shards[shard].server = to
	if to.offset.known && to.offset != from.offset {
		c.applyOffset(shard)
	}
	c.applyMode(shard)
}

// sampleShard adds an exchange for one shard to the estimate of a clock. If it was sent after the estimate
// of the shard's server was taken and contradicts it, the shard has moved to another server, or the clock
// was set. Then the shard becomes a server of its own, and a heartbeat is sent to find out.
func (c *Machine) sampleShard(shard int, sent, recv, now int64) {
	v := c.shards[shard].server
	f := &v.offset
	if len(c.servers) > 1 && len(v.shards) > 1 && f.known && sent >= f.at && recv >= sent && !f.holds(sent, recv, now) {
		v = c.isolate(shard)
		c.beats.next = min(c.beats.next, c.now)
	}
	c.sample(v, sent, recv, now)
}
