package hybrid

import (
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// batch returns the batch for the flight of a shard. It is made anew for each attempt: the
// units stay the same, but ages are relative to the present.
func (c *core) batch(id int) *redisstore.Batch {
	s := &c.shards[id]
	f := s.flight
	if f.tries++; f.tries > 1 {
		c.stats.resent.Add(1)
	}
	if f.maybeBooked && s.acked == 0 {
		c.giveUpRefunds(s)
	}
	c.stats.batches.Add(1)
	if s.mustAsk() {
		s.ask()
	}
	if s.asksFate {
		return &redisstore.Batch{Shard: id, Node: s.node, Seq: s.seq, Prev: s.acked, Nonce: f.nonce}
	}
	c.stats.keysSynced.Add(uint64(len(f.items)))
	b := &redisstore.Batch{Shard: id, Node: s.node, Seq: s.seq, Prev: s.acked, Nonce: f.nonce, Accept: s.accept, MaxLag: time.Duration(c.cfg.maxLag), Ops: make([]redisstore.Op, len(f.items))}
	for i := range f.items {
		it := &f.items[i]
		rep := it.c.Resend(c.local, s.accept)
		it.rule, it.raised = rep.Rule, rep.Raise
		if it.booked {
			b.Ops[i] = c.op(it.c, readOnly(rep), 0)
			continue
		}
		b.Ops[i] = c.op(it.c, rep, it.units)
	}
	return b
}

// op returns the operation for the report of one counter.
func (c *core) op(ctr *counter.Counter, rep counter.Report, units int64) redisstore.Op {
	op := redisstore.Op{
		Key: c.nameOf(ctr, rep.Rule), Rule: rep.Rule, Units: units,
		Ahead: rep.Ahead, Buckets: toRemote(rep.Buckets), Raise: rep.Raise,
		Back: rep.Back, BackTop: rep.BackTop, BackBuckets: toRemote(rep.BackBuckets), BackGen: rep.BackGen,
		Debt: min(rep.Debt, units), Ceiling: rep.Ceiling,
	}
	if rep.Raise {
		op.Known = redisstore.State{Gen: rep.Gen, Born: rep.Born, Level: rep.KnownLevel, Buckets: toRemote(rep.KnownBuckets)}
	}
	return op
}

// handsBack reports whether a report hands units back.
func handsBack(rep counter.Report) bool { return rep.Back != arith.Span{} || len(rep.BackBuckets) > 0 }

// readOnly returns a report that books nothing: it only reads the state of the key, and
// restores what Redis may have lost.
func readOnly(rep counter.Report) counter.Report {
	rep.Units, rep.Buckets, rep.Ahead, rep.Debt = 0, nil, arith.Span{}, 0
	rep.Back, rep.BackTop, rep.BackBuckets = arith.Span{}, arith.Span{}, nil
	return rep
}
