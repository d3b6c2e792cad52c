package hybrid

import (
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What the oracle knows of a flight that was taken apart: what its parts carry was
// admitted when the flight was made up, not when they were.

// wholeOp is an operation of a flight whose fate a node has asked for.
type wholeOp struct {
	op       *redisstore.Op
	i        int          // its index
	made     int64        // the order in which the flight was made up
	left     int64        // when it was sent last
	facts    *flightFacts // of the flight
	booked   bool
	forgiven int64
}

// asks reports whether a batch asks for the fate of another.
func asks(b *redisstore.Batch) bool { return len(b.Ops) == 0 }

// partsOf returns what the batch of a node carries of flights that were taken apart, by
// key.
func (o *nodeOracle) partsOf(n *simNode, b *redisstore.Batch) map[string]wholeOp {
	f := n.core.shards[b.Shard].flight
	if f == nil || !f.part || f.nonce != b.Nonce {
		return nil
	}
	parts := map[string]wholeOp{}
	for i := range b.Ops {
		parts[b.Ops[i].Key] = o.nodes[n].whole[b.Ops[i].Key]
	}
	return parts
}

// fate notes that a node has learnt what has become of a flight.
func (o *nodeOracle) fate(n *simNode, x *exchange, r redisstore.Reply) {
	nb, was, booked := o.nodes[n], x.asksFor, r.Fate == redisstore.FateEarlier
	if was == nil { // it was sent again under another number, after a loss
		was = x
	}
	for i := range was.b.Ops {
		op := &was.b.Ops[i]
		w := wholeOp{op: op, i: i, made: was.madeOf(op.Key), left: was.left, facts: o.s.fleet.flights[flightID{n.id, was.b.Nonce}], booked: booked}
		part := was.parts[op.Key]
		read, sh := part.booked && op.Units == 0, nb.shares[o.index[op.Key]]
		switch {
		case read && slices.Contains(r.Failed, i): // the node goes by what it has sent
			sh.broken(true, was)
			if op.Rule.Algorithm() == limit.AlgorithmFunnel {
				sh.topUp(part.op, was, redisstore.State{}, o.s.now, nb.stalled)
			}
		case read:
			w = part
		case !booked:
			o.s.fleet.refused(n, was.b, i)
		case slices.Contains(r.Failed, i):
			sh.broken(false, was)
			o.s.fleet.refused(n, was.b, i)
		default:
			w.forgiven = r.Forgiven[i]
		}
		nb.whole[op.Key] = w
	}
}

// madeOf returns the order in which the flight was made up that an operation is of.
func (x *exchange) madeOf(key string) int64 {
	if w, ok := x.parts[key]; ok {
		return w.made
	}
	return x.made
}

// whole returns the operation that an exchange has reported and how, as if its flight had
// not been taken apart.
func (x *exchange) whole(i int, st redisstore.State) (*redisstore.Op, *exchange, redisstore.State) {
	op, as := &x.b.Ops[i], *x
	as.made = x.madeOf(op.Key)
	if w := x.parts[op.Key]; w.booked && op.Units == 0 { // else the node has reported the units again
		op, as.left = w.op, w.left
		st.Forgiven += w.forgiven
	}
	return op, &as, st
}

// inherit has the facts of a part be those of the whole.
func (x *flightFacts) inherit(w wholeOp, i int) {
	x.marks[i], x.oldest[i], x.informs[i] = w.facts.marks[w.i], w.facts.oldest[w.i], w.facts.informs[w.i]
	x.booked[i], x.stray[i] = w.facts.booked[w.i], w.facts.stray[w.i]
	x.blind = x.blind || w.facts.blind
}
