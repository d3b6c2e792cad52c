package sim

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/reconcile"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// farFuture is a time in the year 2255, the latest of which notices can speak.
const farFuture = time.Duration(1<<53-1) * time.Microsecond

// forge has somebody publish notices that no node has made.
func (a *simAir) forge() {
	if a.quiet || len(a.s.nodes) == 0 {
		return
	}
	m := reconcile.Message{Node: "forger"}
	for range 1 + a.rng.IntN(5) {
		m.Notices = append(m.Notices, a.forged())
	}
	if a.rng.IntN(8) == 0 {
		m.Notices = nil // a greeting
	}
	if len(a.past) > 0 && a.rng.IntN(4) == 0 {
		m = a.past[a.rng.IntN(len(a.past))] // said before
	}
	for _, n := range a.s.nodes {
		if a.reaches(n) && a.rng.IntN(4) > 0 {
			a.carry(n, m, 0)
		}
	}
}

// forged makes a notice up. Much of it is often as it should be: otherwise none would count.
func (a *simAir) forged() (n report.Notice) {
	k, name := a.drawName()
	v := a.s.serverOf(a.s.keyspace().Shard(k.key))
	now := time.Duration(v.time())
	n = report.Notice{
		ID: redisstore.NoticeIDOf(name), Shard: a.s.keyspace().Shard(k.key), Shape: arith.Of(k.rule).ShapeHash(), Limit: k.rule.Limit(),
		Now: now, Until: now + time.Duration(a.rng.Int64N(int64(2*k.rule.Period()))),
	}
	odd := func(p int) bool { return a.rng.IntN(p) == 0 }
	if odd(8) {
		for i := range n.ID {
			n.ID[i] = byte(a.rng.Uint32())
		}
	}
	if odd(8) {
		n.Shard = []int{-1, 0, a.s.opt.Shards, math.MaxInt}[a.rng.IntN(4)]
	}
	if odd(8) {
		n.Shape = a.rng.Uint32()
	}
	if odd(4) {
		n.Limit = []int64{0, 1, n.Limit - 1, n.Limit + 1, 1 << 53, math.MaxInt64, math.MinInt64}[a.rng.IntN(7)]
	}
	if odd(3) {
		n.Gen = []int64{-1, 1, int64(now) / 1000, int64(farFuture) / 1000, math.MaxInt64}[a.rng.IntN(5)]
	}
	if odd(4) {
		n.Now = []time.Duration{0, now - time.Minute, now + 10*time.Millisecond, now + time.Minute, farFuture, math.MinInt64}[a.rng.IntN(6)]
	}
	if odd(4) {
		n.Until = []time.Duration{0, 1, now, farFuture, math.MaxInt64, math.MinInt64}[a.rng.IntN(6)]
	}
	return n
}
