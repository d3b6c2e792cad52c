package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// splitBrain is a fail-over in which the old master goes on for a while: some nodes
// write to it, the others to the new one. What was reported only to the old one is lost.
type splitBrain struct {
	at    int64 // when it began
	old   *modelRedis
	nodes map[*simNode]bool // that the old master serves
	told  map[strayKey]oracle.Mark
	kept  map[*fleetKey]int64 // up to which edition the old master has each key
}

// strayKey is what a node has reported of a key.
type strayKey struct {
	fk   *fleetKey
	node int
}

// side returns the data that a node reads and writes.
func (v *simServer) side(n *simNode) *modelRedis {
	if v.split != nil && v.split.nodes[n] {
		return v.split.old
	}
	return v.model
}

// divide has the old master serve some nodes from now on.
func (v *simServer) divide(nodes []*simNode) {
	v.split = &splitBrain{at: v.s.now, old: v.model.snapshot(), nodes: map[*simNode]bool{}, told: map[strayKey]oracle.Mark{}, kept: map[*fleetKey]int64{}}
	v.s.fleet.each(v, func(fk *fleetKey) { v.split.kept[fk] = fk.Snapshot() })
	for _, n := range nodes {
		v.split.nodes[n] = true
	}
	v.epoch++
	v.s.oracle.struck(v)
}

// unite ends the old master. What it has booked of a node need not count any more:
// the node reports again what it knew, by maximum, and that may be absorbed by what
// the new one has booked.
func (v *simServer) unite() {
	if v.split == nil {
		return
	}
	v.lose()
	for k, m := range v.split.told {
		k.fk.Strayed(k.node, m)
		k.fk.losses++
		k.fk.strays[k.node] = true
	}
	v.split = nil
	v.epoch++
	v.s.oracle.struck(v)
}

// execOld has the old master execute a batch.
func (v *simServer) execOld(now int64, n *simNode, b *redisstore.Batch) redisstore.Outcome {
	out := redisstore.Outcome{Reply: v.split.old.exec(now, n.name, b)}
	v.s.note(-1-v.id, "the old master's batch "+string('0'+rune(out.Reply.Verdict)), int64(b.Shard), b.Seq)
	if out.Reply.Verdict == redisstore.VerdictApplied {
		v.s.fleet.astray(v, n, b, out.Reply)
	}
	return out
}

// astray notes what an old master has booked that will be lost.
func (f *simFleet) astray(v *simServer, n *simNode, b *redisstore.Batch, r redisstore.Reply) {
	x := f.flights[flightID{n.id, b.Nonce}]
	for i := range b.Ops {
		fk := f.key(f.s.oracle.index[b.Ops[i].Key])
		if r.States[i].Err != nil {
			continue
		}
		// Booked before, by this or another master, or refused there: then the node has
		// sent it in another flight by now.
		if v.model.applied[n.name] += b.Ops[i].Units; x.stray[i] || x.booked[i] || x.applied && !n.carries(b) {
			f.again[creditKey{n.name, ""}] += b.Ops[i].Units
			fk.Twice(f.s.now, b.Ops[i].Units) // its nodes may report both to the new master
		}
		x.stray[i] = true
		x.belated(fk, i, f.s.now)
		v.split.told[strayKey{fk, n.id}] = x.marks[i]
		fk.Raised(f.s.now, r.States[i].Level.NS+1) // its nodes may count what it has
		if u := r.States[i].Forgiven; u > 0 {
			fk.Refund(n.id, f.s.now, u)
		}
	}
}

var splitFault = fault{"split brain", func(s *sim, p *simPlan, rng *rand.Rand) {
	v := s.servers[rng.IntN(len(s.servers))]
	if v.split != nil {
		return
	}
	var old []*simNode
	for _, n := range s.nodes {
		if rng.IntN(2) == 0 {
			old = append(old, n)
		}
	}
	d := time.Duration(ms + rng.Int64N(5000*ms))
	p.say("two masters for %v: %s on the old server%d", d, fmt.Sprint(len(old), " of ", len(s.nodes), " nodes"), v.id)
	v.divide(old)
	s.after(int64(d), v.unite)
}}
