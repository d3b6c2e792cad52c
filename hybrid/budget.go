package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// What booking one operation costs Redis, measured with redis-server 7.0: a funnel, and a
// bucket of a window of 1,000, which a script reads and writes as a whole. Those of
// windows of a few buckets take a fraction of that.
const (
	opCost     = 5 * int64(time.Microsecond)
	bucketCost = 1500 // ns
)

// cost estimates for how long, in ns, an operation of a rule occupies Redis.
func cost(r *limit.Rule) int64 {
	if r.Algorithm() == limit.AlgorithmFunnel {
		return opCost
	}
	return opCost + int64(r.Kept()+1)*bucketCost
}

// budget bounds how long one pipeline occupies Redis, by the estimate of cost. It
// adapts to how fast Redis answers, so that reports come late when there are too many,
// and do not time out: it falls to half of what has taken too long, and grows by a step
// when a pipeline that has used it up was answered soon. So the budgets of many nodes
// become equal in time.
type budget struct {
	ns   int64
	most int64
	slow int64 // an answer that takes longer takes too long
}

// least is what a budget falls to at the least. Answers may just be lost, and then a
// flight of each key would have more of them lost.
func (b *budget) least() int64 { return max(b.most/64, opCost) }

const (
	// mostCost is the most that a budget can be, in ns: Redis serves nobody else meanwhile.
	mostCost = 10 * int64(time.Millisecond)
	// costStep is by how much it grows.
	costStep = 10 * opCost
)

func newBudget(timeout int64) budget {
	most := min(mostCost, timeout/8)
	return budget{ns: most / 2, most: most, slow: timeout / 8} // 200 windows of 10 buckets
}

// answered takes note of a pipeline of a cost that was answered after a time. One that
// only asks for the fate of flights costs nothing, and says nothing.
func (b *budget) answered(cost, took int64) {
	switch {
	case took > b.slow:
		b.timedOut(cost)
	case cost == 0:
	case cost >= b.ns*3/4:
		b.ns = min(b.ns+costStep, b.most)
	}
}

// timedOut takes note of a pipeline of a cost that got no answer in time.
func (b *budget) timedOut(cost int64) {
	if cost > 0 {
		b.ns = max(min(b.ns, cost)/2, b.least())
	}
}

// anew takes note that an outage is over, in which time-outs said nothing of how fast
// Redis is.
func (b *budget) anew() { b.ns = max(b.ns, b.most/8) }
