package hybrid

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
	budget    budget
	distance  distance
	slots     int    // how many more pipelines may be started
	nextAsked int    // index of the shard that the next heartbeat asks for first
	paceAt    int64  // no pipeline with what was missed in an outage starts before this
	paced     uint64 // id of such a pipeline under way; 0: none
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
}

// failed counts an exchange that was sent at began and has failed at now.
func (r *round) failed(began, now int64) {
	if began >= r.at || r.fails == 0 {
		r.fails, r.at = r.fails+1, now
	}
}

// answer is how an exchange has ended for one shard.
type answer struct {
	shard int
	err   error
	list  bool // it is about the list of nodes, which is on the server of that shard
}

// newLoad returns the load of a server to which nothing is under way.
func newLoad(cfg *coreConfig) *load {
	return &load{budget: newBudget(cfg.timeout), slots: cfg.maxPipes}
}

// joins reports whether a shard of v may move to another server because the client says
// that it is there. If the clocks of the two differ, what the client says is out of date.
func (v *server) joins(to *server) bool {
	return v.health == to.health && (!v.offset.known || !to.offset.known || v.offset.agrees(&to.offset))
}

// free reports whether another pipeline may be started. Pipelines with what was missed in
// an outage are sent one at a time.
func (l *load) free(missed bool) bool { return l.slots > 0 && (!missed || l.paced == 0) }
