package sim

import (
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// simFleet reports to package oracle what happens to each key in the whole fleet: who
// has admitted what, what the servers have booked and lost, who has heard of it.
// It looks at messages and at servers' data, never at a counter or a core.
// What it then asks is in guarantee_test.go.
type simFleet struct {
	s       *sim
	keys    map[oracleKey]*fleetKey
	flights map[flightID]*flightFacts
	left    map[*redisstore.Batch]int64 // when each was sent
	steps   oracle.Steps
	stalls  map[int][]clockJump // of nodes' clocks that stood still for so long, until then
	again   map[creditKey]int64 // units that a server has booked once more, by node and key; key "": in all
}

// fleetKey is a book, and what the simulator knows of its key besides.
type fleetKey struct {
	*oracle.Book
	rule    *limit.Rule
	server  *simServer
	name    string
	losses  int64 // so far
	lostAt  int64 // when the latest was
	sets    int
	refunds int
	slowAt  int64 // when a unit was last admitted whose bucket may be off by much
	late    []lateness
	cut     []cutOffUnits
	strays  map[int]bool // nodes that have reported to an old master what is lost
	before  int64        // the latest unit of a node that was cut off, when somebody last heard of Redis
}

// lateness is by how much units were late when they were booked; blind: and in
// which bucket they belonged was not known.
type lateness struct {
	at, by int64
	blind  bool
}

// cutOffUnits is a request that a node has admitted while it was cut off.
type cutOffUnits struct {
	at, units, limit, nodes int64 // nodes: by how many the limit is divided
	holder                  shareHolder
	ahead                   bool // booked ahead, by a reservation
}

// shareHolder is who has a share of a limit in an outage: a node, until its clock jumps.
// If it jumps ahead what the node has admitted before has left its window, or leaked.
type shareHolder struct {
	node   int
	jumped int64
}

// flightID names a flight: it may be sent several times, and under another name.
type flightID struct {
	node  int
	nonce uint64
}

// flightFacts is what a flight carries of each of its keys.
type flightFacts struct {
	marks   []oracle.Mark
	oldest  []int64 // when the oldest unit was admitted that is not booked
	informs []int64 // losses so far, if its node has heard of Redis since the latest; else -1
	booked  []bool  // by a server, each
	stray   []bool  // by an old master, whose data is lost
	blind   bool
	applied bool
	as      string // by that name
	at      int64  // when it was, first
}

func newSimFleet(s *sim) *simFleet {
	return &simFleet{s: s, keys: map[oracleKey]*fleetKey{}, flights: map[flightID]*flightFacts{}, left: map[*redisstore.Batch]int64{}, again: map[creditKey]int64{}, stalls: map[int][]clockJump{}, steps: oracle.Steps{}}
}

// key returns the book of a key.
func (f *simFleet) key(k oracleKey) *fleetKey {
	fk := f.keys[k]
	if fk == nil {
		bk := f.s.oracle.book(k)
		r := oracle.Rule{Window: int64(k.rule.Period()), Width: int64(arith.Of(k.rule).Width) + 2*int64(time.Second)}
		if arith.Of(k.rule).Algorithm == arith.TokenBucket {
			r = oracle.Rule{Leak: 1 / unit(k.rule)}
		}
		fk = &fleetKey{rule: k.rule, server: bk.server, name: bk.name, strays: map[int]bool{}, Book: oracle.New(r, f.s.now)}
		f.keys[k] = fk
	}
	return fk
}

// admitted keeps what a node has admitted; apart: while it was cut off.
func (f *simFleet) admitted(n *simNode, k oracleKey, a admission, apart bool) {
	fk := f.key(k)
	fk.Admit(n.id, f.s.now, a.n, oracle.How{Apart: apart, Lost: a.blind})
	if a.slack > f.s.longest() || a.slack > f.s.oracle.slack() || a.blind {
		fk.slowAt = f.s.now
	}
	if apart {
		fk.cut = append(fk.cut, cutOffUnits{at: f.s.now, units: a.n, limit: a.rule.Limit(), nodes: max(a.multiplier, 1), holder: shareHolder{n.id, f.s.oracle.nodes[n].jumped}})
	}
}

// ahead notes that what was admitted last was booked ahead.
func (f *simFleet) ahead(k oracleKey) {
	if fk := f.key(k); len(fk.cut) > 0 {
		fk.cut[len(fk.cut)-1].ahead = true
	}
}

// refunded notes that a node has handed units back.
func (f *simFleet) refunded(n *simNode, k oracleKey, units int64) {
	fk := f.key(k)
	fk.refunds++
	fk.Refund(n.id, f.s.now, units)
}

// sent notes what a flight carries that is made now.
func (f *simFleet) sent(n *simNode, b *redisstore.Batch) {
	f.left[b] = f.s.now
	id := flightID{n.id, b.Nonce}
	if f.flights[id] != nil {
		return
	}
	x := &flightFacts{}
	for i := range b.Ops {
		k := f.s.oracle.index[b.Ops[i].Key]
		fk, sh, informs := f.key(k), f.s.oracle.nodes[n].shares[k], int64(-1)
		if fk.Informed(n.id) {
			informs = fk.losses
		}
		x.booked = append(x.booked, false)
		x.stray = append(x.stray, false)
		x.marks, x.informs, x.oldest = append(x.marks, fk.Mark(n.id)), append(x.informs, informs), append(x.oldest, sh.oldest())
		x.blind = x.blind || slices.ContainsFunc(sh.own, func(a admission) bool { return a.blind })
	}
	f.flights[id] = x
}

// expiring notes which of a batch's leaky buckets Redis does not remember.
func (f *simFleet) expiring(v *simServer, b *redisstore.Batch) {
	for i := range b.Ops {
		k := f.s.oracle.index[b.Ops[i].Key]
		if m := v.model.leaky[b.Ops[i].Key]; arith.Of(k.rule).Algorithm == arith.TokenBucket && (m == nil || m.gone <= v.time()) {
			f.key(k).Expired()
		}
	}
}

// replacing reports which of a batch's keys would be replaced by what the batch reports
// again of a later generation, although its node has not heard of all that: it was booked
// after that began, but births are by Redis' clock, which is behind where it was; or an
// old master has begun the generation, whose node has not yet reported again what it knew; or
// the node's own clock was set, so that what it knows has leaked for it.
func (f *simFleet) replacing(v *simServer, n *simNode, b *redisstore.Batch) (out []bool) {
	for i := range b.Ops {
		op := &b.Ops[i]
		is := v.model.leakyAt(v.time(), op.Key).modelBirth
		if arith.Of(op.Rule).Algorithm != arith.TokenBucket {
			is = v.model.windowAt(v.time(), op.Key).modelBirth
		}
		horizon, set := int64(arith.Of(op.Rule).Horizon()), f.s.oracle.nodes[n].jumped
		cause := v.behind(horizon) > 0 || set != 0 && f.s.now-set < horizon || f.key(f.s.oracle.index[op.Key]).strays[n.id]
		out = append(out, op.Restore && max(is.gen, is.born) < op.Known.Gen && cause)
	}
	return out
}

// executed notes what a server has booked, and checks what it counts then.
func (f *simFleet) executed(v *simServer, n *simNode, b *redisstore.Batch, r redisstore.Reply, replaced []bool) {
	left := f.left[b]
	if r.Verdict != redisstore.VerdictApplied {
		return
	}
	x := f.flights[flightID{n.id, b.Nonce}]
	if x.applied && v.lost < x.at && x.as == b.Node && !f.s.oracle.loose {
		f.s.failf("I3: flight %d of %s has been applied twice, although no data was lost", b.Seq, b.Node)
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		fk := f.key(f.s.oracle.index[op.Key])
		if r.States[i].Err != nil {
			if n.carries(b) { // its record is lost, and the node will send it in another flight
				f.repeated(x, i, n, fk, op)
				x.booked[i], x.stray[i] = false, false
			}
			continue
		}
		if op.Restore || r.States[i].Gen >= f.s.oracle.nodes[n].shares[f.s.oracle.index[op.Key]].gen {
			delete(fk.strays, n.id) // it has reported again what it knew, or that cannot replace anything
		}
		if op.Restore { // that comes first
			fk.Raised(f.s.now, op.Known.Level.NS+1)
			if f.outdated(fk, op); replaced[i] {
				fk.Replaced(n.id)
			}
		}
		// What was refused before the node has sent in another flight by now.
		if !f.repeated(x, i, n, fk, op) && x.applied && !n.carries(b) {
			f.applyAgain(fk, n.name, op)
		}
		x.booked[i], x.stray[i] = true, false
		if u := r.States[i].Forgiven; u > 0 { // as if handed back the moment that they are booked
			fk.Refund(n.id, f.s.now, u)
			fk.Seal()
		}
		fk.Booked(n.id, x.marks[i], f.s.now, f.s.now-left+f.stalled(n.id, x.oldest[i]))
		if sh := f.s.oracle.nodes[n].shares[f.s.oracle.index[op.Key]]; r.States[i].Gen > sh.gen && v.behind(int64(arith.Of(op.Rule).Horizon())) > 0 {
			// It is about to hear of a reset, and takes all that it knows for older: births
			// are by Redis' clock, which is behind where it was.
			fk.Older(n.id)
		}
		// A stray copy from before the loss has less than its node knew by then.
		if op.Restore && left >= fk.lostAt || x.informs[i] == fk.losses {
			fk.Restored(n.id)
		}
		if takesOff(op) {
			fk.Seal()
		}
		x.belated(fk, i, f.s.now)
		f.counted(fk)
	}
	if !x.applied {
		x.applied, x.at, x.as = true, f.s.now, b.Node
	}
}

// belated notes by how much the units of a key are late that are booked now.
func (x *flightFacts) belated(fk *fleetKey, i int, now int64) {
	l := lateness{at: now, blind: x.blind}
	if x.oldest[i] != 0 {
		l.by = now - x.oldest[i]
	}
	fk.late = append(fk.late, l)
}

// outdated notes which nodes know a key of an earlier generation than what is reported again
// of it: that replaces what they will report.
func (f *simFleet) outdated(fk *fleetKey, op *report.Report) {
	for _, n := range f.s.nodes {
		if sh := f.s.oracle.nodes[n].shares[f.s.oracle.index[op.Key]]; sh != nil && sh.gen < op.Known.Gen {
			fk.Older(n.id)
		}
	}
}

// carries reports whether a node still waits for the answer to a batch.
func (n *simNode) carries(b *redisstore.Batch) bool {
	f := n.shard(b.Shard).Flight
	return f.Keys > 0 && f.Nonce == b.Nonce
}

// repeated notes that units of a flight are booked again, if they were before.
func (f *simFleet) repeated(x *flightFacts, i int, n *simNode, fk *fleetKey, op *report.Report) bool {
	switch {
	case x.booked[i]:
		f.applyAgain(fk, n.name, op)
	case x.stray[i]:
		// What the old master had booked is lost, but another node may have heard of
		// it there and reported it again: then it counts twice.
		fk.Twice(f.s.now, op.Units)
		f.again[creditKey{n.name, ""}] += op.Units
	}
	return x.booked[i] || x.stray[i]
}

// refused notes that a node gets the answer that its units were not booked, and will send them in
// another flight. They were if Redis has fallen back since to a record from before that.
func (f *simFleet) refused(n *simNode, b *redisstore.Batch, i int) {
	x, op := f.flights[flightID{n.id, b.Nonce}], &b.Ops[i]
	f.repeated(x, i, n, f.key(f.s.oracle.index[op.Key]), op)
	x.booked[i], x.stray[i] = false, false
}

// applyAgain notes that a server books what it has booked before. It can do so
// only because it has lost the record of that.
func (f *simFleet) applyAgain(fk *fleetKey, node string, op *report.Report) {
	fk.Twice(f.s.now, op.Units)
	f.again[creditKey{node, op.Key}] += op.Units
	f.again[creditKey{node, ""}] += op.Units
}

// booked returns what servers have booked of a node, each unit once, and how often
// they have taken off what it has handed back.
func (f *simFleet) booked(n *simNode) (applied, back int64) {
	for _, v := range f.s.servers {
		applied += v.model.applied[n.name]
		back += v.model.back[n.name]
	}
	return applied - f.again[creditKey{n.name, ""}], back
}

// editions returns the editions of a batch's keys.
func (f *simFleet) editions(b *redisstore.Batch) (out []int64) {
	for i := range b.Ops {
		out = append(out, f.key(f.s.oracle.index[b.Ops[i].Key]).Edition())
	}
	return out
}

// answered notes that a node has heard what Redis had of a key, in an exchange that took so
// long; older: of an earlier generation than what the node knows.
func (f *simFleet) answered(n *simNode, k oracleKey, edition int64, older bool, took int64) {
	fk := f.key(k)
	if len(fk.cut) > 0 {
		fk.before = fk.cut[len(fk.cut)-1].at
	}
	if older {
		fk.Ignored(n.id, edition)
		return
	}
	if arith.Of(fk.rule).Algorithm != arith.TokenBucket && took+ms >= int64(arith.Of(n.rule(k.rule)).Width) {
		return // what it misses may be in a bucket beside: that shows nothing
	}
	fk.Heard(n.id, edition)
}

// answeredAstray notes that a node has heard of a later generation from an old master.
func (f *simFleet) answeredAstray(n *simNode, k oracleKey) {
	if fk := f.key(k); fk.server.split != nil {
		fk.Astray(n.id, fk.server.split.kept[fk])
	}
}

// forget notes that nothing that a node knows of a key can be relied upon.
func (f *simFleet) forget(n *simNode, k oracleKey) {
	fk := f.key(k)
	fk.End(n.id)
	fk.Begin(n.id)
}

// ended notes that a process has ended with all that it had in memory.
func (f *simFleet) ended(n *simNode) {
	for k := range f.s.oracle.nodes[n].shares {
		f.key(k).End(n.id)
		delete(f.key(k).strays, n.id)
	}
}

// renewed notes that a key was set; used is 0 for a reset.
func (f *simFleet) renewed(k oracleKey, used int64) {
	fk := f.key(k)
	fk.late, fk.cut = nil, nil
	fk.sets++
	fk.Set(f.s.now, used)
}

// each visits the keys of a server.
func (f *simFleet) each(v *simServer, do func(*fleetKey)) {
	for _, fk := range f.keys {
		if fk.server == v {
			do(fk)
		}
	}
}

// lose notes that a server has lost what came after an edition of each key: all of
// those that are not named.
func (f *simFleet) lose(v *simServer, kept map[*fleetKey]int64) {
	f.each(v, func(fk *fleetKey) {
		fk.lose(kept[fk], f.s.now)
	})
}

// loseKey notes that a server has lost one key.
func (f *simFleet) loseKey(name string) {
	if k, ok := f.s.oracle.index[name]; ok {
		f.key(k).lose(0, f.s.now)
	}
}

// lose notes that a key has lost what came after an edition.
func (fk *fleetKey) lose(kept, now int64) {
	fk.losses, fk.lostAt = fk.losses+1, now
	fk.Lose(kept)
}
