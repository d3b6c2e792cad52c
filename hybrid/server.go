package hybrid

// server is what is known of one server of Redis: the only one, or a master of a Cluster.
// Health is a server's, because what ails it ails all shards that it holds.
type server struct {
	name      string // its address; "": of a shard by itself
	shards    []int  // that it holds
	health    health
	rounds    round
	bookedAt  int64 // pace, when it answered a batch last
	offset    offsetFilter
	load      *load
	nextShard int      // shard to look at first, so that all get their turn
	answers   []answer // of the exchange that is looked at, see fared
}

// load bounds what is under way to a server. Shards by themselves share one with each other,
// or with the server that they were on: they may well be on the same.
type load struct {
	budget    budget
	slots     int    // pipelines that may still be started
	nextAsked int    // shard that the next heartbeat asks first
	paceAt    int64  // no pipeline before that tells what was missed
	paced     uint64 // the one under way; 0: none
}

// health is whether a server can be reached.
type health uint8

const (
	starting health = iota // it has not been heard of yet
	up
	down
	trying // it has answered a probe since it was down, but may still refuse batches
)

// round counts exchanges that failed, those that were under way at the same time as
// one: a server that stalls once fails all of them.
type round struct {
	fails int
	at    int64 // pace, when the latest was counted
}

// failed counts an exchange that began at a time and has failed now.
func (r *round) failed(began, now int64) {
	if began >= r.at || r.fails == 0 {
		r.fails, r.at = r.fails+1, now
	}
}

// answer is what has become of an exchange for one shard.
type answer struct {
	shard int
	err   error
	list  bool // for the list of nodes, which is beside that shard
}

// newLoad returns the bounds of a server to which nothing is under way.
func newLoad(cfg *coreConfig) *load {
	return &load{budget: newBudget(cfg.timeout), slots: cfg.maxPipes}
}

// joins reports whether a shard of a server may move to another one. If another clock has
// answered for it than that one's, what the client says is out of date.
func (v *server) joins(to *server) bool {
	return v.health == to.health && (!v.offset.known || !to.offset.known || v.offset.agrees(&to.offset))
}

// free reports whether a pipeline may be started: of what was missed in an outage one at
// a time, else a few.
func (l *load) free(missed bool) bool { return l.slots > 0 && (!missed || l.paced == 0) }
