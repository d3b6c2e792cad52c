package reconcile

import (
	"cmp"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// How long one operation occupies Redis, in ns, measured with redis-server 7.0: opCost for a leaky
// bucket, and bucketCost for one bucket of a window with 1,000 buckets, which a script reads and writes
// as a whole. A bucket of a window with a few buckets costs a fraction of that.
const (
	opCost     = 5 * int64(time.Microsecond)
	bucketCost = 1500
)

// cost estimates how long an operation of a rule occupies Redis, in ns.
func cost(r *limit.Rule) int64 {
	if arith.Of(r).Algorithm == arith.TokenBucket {
		return opCost
	}
	return opCost + int64(arith.Of(r).Kept+1)*bucketCost
}

// budget bounds the estimated cost of one pipeline. It adapts to how fast Redis answers, so that under
// overload reports are late, but do not time out. After a slow answer it falls to half of the cost
// that was slow. After a fast answer to a pipeline that has used it up it grows by a step. With this
// the budgets of many nodes become equal over time.
type budget struct {
	ns   int64 // the estimated cost that a pipeline may have
	most int64 // upper bound of ns
	slow int64 // an answer is slow if it takes longer than the distance by more than this, ns
}

// least is the lower bound of the budget. Each call has a fixed cost for Redis and for the client,
// which is as high as that of the keys in a call of this size: smaller calls would make an overload
// worse. Besides, answers may be slow only because the client's machine is busy.
func (b *budget) least() int64 { return max(b.most/64, opCost) }

const (
	// mostCost is the upper bound of any budget: while a batch runs, Redis serves no other client.
	mostCost = 10 * int64(time.Millisecond)
	// costStep is by how much a budget grows after an answer. A server that is far away answers less
	// often. Its budget grows by a step for each costStepsPer of distance, by mostSteps at most.
	costStep     = 10 * opCost
	costStepsPer = int64(time.Millisecond)
	mostSteps    = 10
)

// newBudget returns the budget of a server that has not answered yet.
func newBudget(timeout int64) budget {
	most := min(mostCost, timeout/8)
	return budget{ns: most / 2, most: most, slow: timeout / 8} // room for 200 windows of 10 buckets
}

// answered adapts b to a pipeline of that cost, which a server at that distance has answered after
// took. The round trip and its jitter are no overload. dialed: a connection may have been made
// meanwhile, so that a slow answer says nothing about the server.
func (b *budget) answered(cost, took, distance int64, dialed bool) {
	switch {
	case took-distance > max(b.slow, distance):
		if !dialed {
			b.timedOut(cost)
		}
	case cost >= b.ns*3/4:
		b.ns = min(b.ns+costStep*min(max(distance/costStepsPer, 1), mostSteps), b.most)
	}
}

// timedOut adapts b to a pipeline of that cost that got no answer in time.
func (b *budget) timedOut(cost int64) {
	b.ns = max(min(b.ns, cost)/2, b.least())
}

// anew makes b at least an eighth of its upper bound after an outage: time-outs during the outage say
// nothing about how fast Redis works.
func (b *budget) anew() { b.ns = max(b.ns, b.most/8) }

// distance is the round-trip time to a server, measured as the shortest time that an exchange has
// taken lately. With it a server that is far away does not look overloaded: an overloaded server takes
// longer than its distance.
type distance struct {
	least, before int64 // of this period and of the one before, ns; 0: there was no answer
	began         int64 // when this period began, on the timer clock
}

// distancePeriod is the length of a measuring period, in ns. A distance that has grown (after a
// failover to another zone) is noticed after two periods at the latest.
const distancePeriod = 5 * int64(time.Second)

// answered notes an exchange that has taken took, and has ended at now.
func (d *distance) answered(now, took int64) {
	if now-d.began >= distancePeriod {
		d.before, d.least = d.least, 0
		if now-d.began >= 2*distancePeriod {
			d.before = 0
		}
		d.began = now
	}
	if took = max(took, 1); d.least == 0 || took < d.least {
		d.least = took
	}
}

// ns returns the distance, 0 if it is not known.
func (d *distance) ns() int64 {
	if d.before != 0 && (d.least == 0 || d.before < d.least) {
		return d.before
	}
	return d.least
}

// unknown discards the distance: exchanges fail, and the next answer may come from another server.
func (d *distance) unknown() { d.least, d.before = 0, 0 }

// trips is how many round trips a call may take: up to four to make a connection (TCP, TLS, HELLO,
// SELECT), and one for the call itself.
const trips = 5

// patient is how many heartbeats in a row may get no answer in time before the deadline of further ones
// grows, for a server that has answered before, or is known to be down.
const patient = 3

// deadline returns how long to wait for the answer to a call, in ns, after late calls in a row had no
// answer in time. It is CommandTimeout, or longer if the server is known to be far away. Each call
// without an answer doubles it: Redis may need that long for the flight, or the server may be far away.
func (c *Machine) deadline(v *server, late int) int64 {
	d, most := max(c.cfg.CommandTimeout, trips*v.load.distance.ns()), c.mostPatience()
	for ; late > 0 && d < most; late-- {
		d *= 2
	}
	return min(d, most)
}

// mostPatience is the longest deadline of a call, in ns.
func (c *Machine) mostPatience() int64 { return redisstore.MostPatience * c.cfg.CommandTimeout }

// beatDeadline returns how long to wait for a heartbeat, in ns: the longest deadline of all servers,
// because all of them answer it. A server that has not answered yet has the longest there is: the first
// call makes a connection, and the server may be far away. With less time the start of each process
// would look like an outage. For another server, the first heartbeats without an answer do not make it
// longer: a server that hangs should be noticed soon, and usually the answers were just lost.
func (c *Machine) beatDeadline() (d int64) {
	for _, v := range c.servers {
		if v.health == starting {
			return c.mostPatience()
		}
		d = max(d, c.deadline(v, c.beats.unanswered-patient))
	}
	return d
}

// mostKeys returns how many keys a flight to a server may carry. A server that is far away gets larger
// flights, because the next flight of a shard is sent only when this one is answered.
func (c *Machine) mostKeys(v *server) int {
	n, most := int64(cmp.Or(c.cfg.MaxBatch, defaultBatch)), int64(cmp.Or(c.cfg.MaxBatch, redisstore.MaxOps))
	return int(min(max(n, n*v.load.distance.ns()/nearby), most))
}

// nearby is the distance, in ns, above which flights are larger. Up to it one node can report 10,000
// keys a second with the default of MaxBatch.
const nearby = 20_000_000
