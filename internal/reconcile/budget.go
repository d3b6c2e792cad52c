package reconcile

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The cost of booking one operation in Redis, in ns, measured with redis-server 7.0: of a
// leaky bucket, and of one bucket of a window with 1,000 buckets, which a script reads and writes
// as a whole. A bucket of a window with a few buckets costs a fraction of that.
const (
	opCost     = 5 * int64(time.Microsecond)
	bucketCost = 1500
)

// cost estimates how long an operation of a rule occupies Redis, in ns.
func cost(r *limit.Rule) int64 {
	if r.Algorithm() == limit.AlgorithmFunnel {
		return opCost
	}
	return opCost + int64(arith.Of(r.Arith()).Kept+1)*bucketCost
}

// budget bounds the estimated cost of one pipeline. It adapts to how fast Redis answers, so
// that an overload makes reports late and not time out. After a slow answer it falls to
// half of the cost that was slow. It grows by a step after a fast answer to a pipeline that
// has used it up. So the budgets of many nodes become equal in time.
type budget struct {
	ns   int64 // the estimated cost that a pipeline may have
	most int64 // upper bound of ns
	slow int64 // an answer that takes so much longer than the way there and back is slow
}

// least is the lower bound of the budget. A call that costs less costs Redis and the client as
// much for itself as for its keys, so that smaller ones would make an overload worse. Answers are
// also slow because the machine of the client is busy.
func (b *budget) least() int64 { return max(b.most/64, opCost) }

const (
	// mostCost is the upper bound of any budget: Redis serves no other client meanwhile.
	mostCost = 10 * int64(time.Millisecond)
	// costStep is by how much a budget grows after an answer. One that is far away answers seldom: there
	// it is a step for each so many ns, and so many steps at most.
	costStep     = 10 * opCost
	costStepsPer = int64(time.Millisecond)
	mostSteps    = 10
)

// newBudget returns the budget of a server that has not answered yet.
func newBudget(timeout int64) budget {
	most := min(mostCost, timeout/8)
	return budget{ns: most / 2, most: most, slow: timeout / 8} // room for 200 windows of 10 buckets
}

// answered adapts b to a pipeline of a cost that was answered after took by a server at a distance.
// The way there and back is no overload, nor is its jitter. dialed says that a connection was made
// meanwhile: then a slow answer says nothing.
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

// timedOut adapts b to a pipeline of a cost that got no answer in time.
func (b *budget) timedOut(cost int64) {
	b.ns = max(min(b.ns, cost)/2, b.least())
}

// anew raises b after an outage: its time-outs said nothing about how fast Redis works.
func (b *budget) anew() { b.ns = max(b.ns, b.most/8) }

// distance is how far away a server is, as a time: the shortest that an exchange has taken lately.
// A server that is far away is not overloaded. One that is overloaded takes longer than that.
type distance struct {
	least, before int64 // of this period and of the one before, ns; 0: there was no answer
	began         int64 // when this period began, on the timer clock
}

// distancePeriod is after how long a distance that has grown is noticed at the latest, twice, in ns:
// servers move away (a failover to another zone).
const distancePeriod = 5 * int64(time.Second)

// answered notes an exchange that has taken so long, and has ended at now.
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

// unknown forgets the distance: exchanges fail, and the next answer may come from elsewhere.
func (d *distance) unknown() { d.least, d.before = 0, 0 }

// trips is how many round trips a call may take: to make a connection takes up to four of them (TCP,
// TLS, the greeting, the choice of a database) before the call itself.
const trips = 5

// patient is how many heartbeats without an answer in time it takes, of a server that has answered
// before, until further ones wait longer.
const patient = 3

// deadline returns how long to wait for a call of a server, in ns, after so many in a row had no
// answer in time. It is CommandTimeout, or longer if the server is known to be far away. Each call
// without an answer doubles it: a flight may take Redis so long, or the server may be far away.
func (c *Machine) deadline(v *server, late int) int64 {
	d, most := max(c.cfg.timeout, trips*v.load.distance.ns()), c.mostPatience()
	for ; late > 0 && d < most; late-- {
		d *= 2
	}
	return min(d, most)
}

// mostPatience is the longest deadline of a call, in ns.
func (c *Machine) mostPatience() int64 { return redisstore.MostPatience * c.cfg.timeout }

// beatDeadline returns how long to wait for a heartbeat, which all servers answer. Once a server has
// answered, the first ones without an answer wait equally long: one that hangs is to be noticed
// soon, and mostly the answers were just lost.
func (c *Machine) beatDeadline() (d int64) {
	for _, v := range c.servers {
		late := c.beats.unanswered
		if v.health != starting {
			late -= patient
		}
		d = max(d, c.deadline(v, late))
	}
	return d
}

// mostKeys returns how many keys a flight to a server may carry. One that is far away gets fuller
// flights, because the next one leaves only when this one is answered.
func (c *Machine) mostKeys(v *server) int {
	n := int64(c.cfg.maxBatch)
	return int(min(max(n, n*v.load.distance.ns()/nearby), max(n, int64(c.cfg.farBatch))))
}

// nearby is the distance from which on flights are fuller, in ns: up to there one node reports
// 10,000 keys a second with the default of MaxBatch.
const nearby = 20_000_000
