package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/oracle"
	"github.com/hybridlimit/hybridlimit/limit"
)

// A fleet tells package oracle what happens to each key, slot by slot, and asks it
// what must and may count: it knows the promises, not the code. It hears of what
// the nodes were asked and have admitted, counted by those who asked, and of the
// faults at work. Bookings and answers it does not see; it infers the latest moment
// at which they must have happened. Its memory is bounded: a soak may last for days.
//
// # What must have been booked and heard of
//
// A node reports a unit within
//
//	R = lag + S + 2δ + 3σ
//
// a lag, an interval, an exchange that may be under way, and its own; δ is the longest
// exchange and σ the longest delay of a timer of late, both measured, and three
// who hand on may each be as late as a timer. What was admitted by u is therefore
// booked at u+R, if nothing was wrong with its node from u to u+R. A node asks what is
// booked when it has admitted something; when it has only refused, its view may
// be a lag and 2·S older. It has the answer R later, if nothing was wrong with it.
//
// Something is wrong with a node while a fault is at work on it or on the server,
// while an exchange fails or δ + 3σ is as long as its timeout, and then until it says
// that it is synced, but not for longer than the back-off cap and a little: beyond
// that it is judged as if nothing were wrong, and that it is not synced is a breach.
//
// # What may be lost
//
// When Redis loses data, all that was admitted by then may have been booked, and be
// gone; what is admitted until the loss is mended may be absorbed when the nodes
// raise Redis to what they know. It is mended a heartbeat (all data lost) or
// 5·S and a check (one key lost), and 3·R, after the last node is without a fault.
//
// # When units are
//
// A unit has the date of the end of the slot in which its check returned: that is
// later than it was admitted by at most
//
//	dated = slot + misdated
//
// A node may misjudge Redis' clock by half of an exchange, which lasts its timeout,
// the limiter's grace and σ at the most. A unit that one node has booked and another
// counts may be off by both halves:
//
//	skew = T + grace + σ
//
// A process that has not been answered yet does not know where buckets begin. Units
// from then go where the last of their bucket does: up to a width later.

const (
	slot = 20 * time.Millisecond // how finely time is looked at
	// ring is how many slots are remembered. It must exceed the longest window
	// by the longest outage; what is older is taken for unknown.
	ring = 2048
	// misdated is how long a check may have taken to be written down as of one
	// moment. A machine that is busy elsewhere interrupts now and then.
	misdated = 2 * slot
	dated    = slot + misdated
)

// inSlots returns d in slots, rounded up.
func inSlots(d time.Duration) int { return int((d + slot - 1) / slot) }

// when returns the end of a slot, in ns since the run began.
func when(s int) int64 { return int64(s) * int64(slot) }

// What a bound depends on, in slots.
var (
	refreshSlots = inSlots(lag + 2*interval)
	beatSlots    = inSlots(heartbeat * 11 / 10)
	// noticeSlots is when a node must have noticed that Redis is away, but for σ:
	// the first failure begins with a heartbeat at the latest.
	noticeSlots = inSlots(heartbeat*11/10 + degradeAfter*(commandTimeout+grace) + maxBackoff)
	// capSlots is when a node must be synced after the last fault.
	capSlots = inSlots(maxBackoff + 5*time.Second)
	// crowdSlots is when a node knows how many there are: three beats for one
	// that has gone, four until a number that was held is let go, and one more.
	crowdSlots = 8 * beatSlots
)

// history is a sum after each slot of the recent past.
type history [ring]int32

func (h *history) at(s int) int64 {
	if s <= 0 {
		return 0
	}
	return int64(h[s%ring])
}

// carry begins a slot with what the one before ended with.
func (h *history) carry(s int) { h[s%ring] = h[(s-1)%ring] }

func (h *history) add(s int, v int32) { h[s%ring] += v }

// process is what is known of the process of a place.
type process struct {
	alive    bool
	number   int // counts those of the place
	born     int
	mode     hybrid.Mode
	nodes    int
	forgiven int64
	cause    int // the latest slot with a fault, not of its own making,
	trouble  int // and with something wrong
	sealed   int // since when it has no way to Redis at all; 0: it may have
	age      int // R
	late     bool
	losses   uint64   // of data, that it has noticed
	expect   bool     // it is to notice one
	unsure   bool     // it has not been answered yet
	pardoned int      // it may notice one until then
	waiting  []report // what need not have been booked and answered yet
	took     []int    // by key: the latest slot in which it admitted something,
	asked    []int    // and in which it was asked, of those that must have been answered
}

// report is what a process has to tell of a slot.
type report struct {
	slot  int
	items []owed
}

// owed is what a process has to tell of an item.
type owed struct {
	mark        oracle.Mark
	units       int64
	took, asked int // the latest slot in which it admitted something, and was asked; 0: none
}

// add adds what came before.
func (x *report) add(before *report) {
	for k := range x.items {
		o, b := &x.items[k], &before.items[k]
		o.units, o.took, o.asked = o.units+b.units, max(o.took, b.took), max(o.asked, b.asked)
	}
}

// key is what is known of an item.
type key struct {
	*oracle.Book
	spec
	until  int  // the latest slot with a loss,
	mended int  // and in which all that remained had been told anew
	asks   bool // only this key is lost: who asks will see
	cut    []cutOff
	units  history
}

// cutOff is what a process has admitted while it was cut off.
type cutOff struct {
	at             int64
	place, process int
	sealed         int     // since when it had no way to Redis at all; 0: it may have had
	share          float64 // what it may admit like that in all
}

// fact is what is known of a place in a slot.
type fact struct {
	place  int
	laps   []lap
	cause  bool // a fault was at work
	sealed bool // there was no way to Redis during all of the slot
	age    int
}

// turn is all that happened in a slot.
type turn struct {
	facts  []fact
	stall  time.Duration // σ
	losses []int         // keys; wholeLoss: all
	ill    []int         // keys that no node can use, and that are lost
	pardon []int         // places whose ledger was deleted: they will take it for a loss
	twice  [][]int64     // by place: units that may be booked once more
	crowd  bool          // the set of nodes was lost
}

const wholeLoss = -1

// fleet judges. All its methods are for one goroutine.
type fleet struct {
	keys     []key
	procs    []process     // by place
	offered  [][]history   // by place and key
	editions [ring][]int64 // by slot and key
	now      int           // the slot that was judged last
	epoch    int64         // Redis' clock at the beginning of the run, ns
	crowd    int           // when the number of nodes changed, or was lost
	whole    bool          // all data is lost, and not all has been told anew
	unsure   int           // the latest slot with a process that had not been answered yet
	stall    time.Duration // the longest σ of late,
	stallAt  int           // then
	worst    finding
	steps    oracle.Steps
	breach   func(format string, args ...any)
}

func newFleet(rules []*limit.Rule, nodes int, breach func(string, ...any)) *fleet {
	f := &fleet{procs: make([]process, nodes), steps: oracle.Steps{}, breach: breach}
	for _, r := range rules {
		p := newSpec(r)
		f.keys = append(f.keys, key{spec: p, Book: oracle.New(p.book(), 0)})
	}
	for range nodes {
		f.offered = append(f.offered, make([]history, len(rules)))
	}
	for s := range f.editions {
		f.editions[s] = make([]int64, len(rules))
	}
	return f
}

// Nodes of a book that are no places: one that may still tell Redis what it knew
// before a loss, though nothing of it is certain, and one that hands back what was forgiven.
func (f *fleet) witness() int  { return len(f.procs) }
func (f *fleet) forgiver() int { return len(f.procs) + 1 }

// step judges the next slot.
func (f *fleet) step(t turn) {
	f.now++
	if t.stall >= f.stall || f.now-f.stallAt > ring {
		f.stall, f.stallAt = t.stall, f.now
	}
	for k := range f.keys {
		f.keys[k].units.carry(f.now)
		for place := range f.procs {
			f.offered[place][k].carry(f.now)
		}
	}
	// A node may notice in this very slot what has happened in it.
	f.foretell(&t)
	for i := range t.facts {
		f.observe(&t.facts[i])
	}
	f.pardon(&t) // whoever was born in this slot, too
	if t.crowd {
		f.crowd = f.now
	}
	for _, k := range t.losses {
		f.lose(k)
	}
	for _, units := range t.twice {
		f.twice(units)
	}
	for _, k := range t.ill {
		f.keys[k].until = f.now
	}
	f.mend()
	f.report(t.unlists())
	f.noteEditions()
	f.hear()
	f.judge(t.facts)
	f.judgeCrowd()
}

// observe takes in what is known of a place.
func (f *fleet) observe(x *fact) {
	p := &f.procs[x.place]
	p.age = x.age
	if x.cause {
		p.cause = f.now
		if p.pardoned >= f.now { // it hears of that when it is back
			p.pardoned = f.now + capSlots
		}
	}
	p.seal(x, f.now)
	for i := range x.laps {
		switch l := &x.laps[i]; l.kind {
		case born:
			f.birth(x)
		case ran:
			f.ran(x.place, l, x.cause)
		default:
			f.death(x.place, l.kind == left)
		}
	}
	if p = &f.procs[x.place]; !p.alive {
		return
	}
	if x.cause || p.mode != hybrid.Synced && f.now-p.cause <= capSlots {
		p.trouble = f.now
	}
	if p.unsure {
		f.unsure = f.now
	}
	f.judgeSealed(x.place)
}

// seal notes since when a process has no way to Redis.
func (p *process) seal(x *fact, now int) {
	switch {
	case !x.sealed:
		p.sealed = 0
	case p.sealed == 0:
		p.sealed = now
	}
}

func (f *fleet) birth(x *fact) {
	n, place := len(f.keys), x.place
	f.procs[place] = process{
		alive: true, number: f.procs[place].number + 1, born: f.now, cause: f.now, trouble: f.now, nodes: 1,
		mode: hybrid.Resyncing, unsure: true, age: f.procs[place].age, took: make([]int, n), asked: make([]int, n),
	}
	f.procs[place].seal(x, f.now)
	for k := range f.keys {
		f.keys[k].Begin(place)
	}
	f.crowd = f.now
}

// death ends a process. What one that has crashed had not reported is lost.
func (f *fleet) death(place int, orderly bool) {
	for k := range f.keys {
		if orderly {
			f.bookAll(k, place)
		}
		f.keys[k].End(place)
	}
	f.procs[place].alive, f.procs[place].waiting = false, nil
	f.crowd = f.now
}

// bookAll notes that Redis may have booked all that a place has admitted.
func (f *fleet) bookAll(k, place int) {
	b := f.keys[k].Book
	b.Booked(place, b.Mark(place), when(f.now), 0)
}

// ran takes in what a process was asked.
func (f *fleet) ran(place int, l *lap, cause bool) {
	p := &f.procs[place]
	f.judgeMode(place, l, cause)
	x := report{slot: f.now, items: make([]owed, len(l.items))}
	for k := range l.items {
		f.admit(place, k, l)
		o, a := &x.items[k], &l.items[k]
		o.mark, o.units = f.keys[k].Mark(place), int64(a.admitted())
		if o.units > 0 {
			o.took, o.asked = f.now, f.now
		} else if a.offered > 0 {
			o.asked = f.now
		}
	}
	p.waiting = append(p.waiting, x)
	if d := l.forgiven - p.forgiven; d > 0 {
		f.forgive(d)
	}
	p.unsure = p.unsure && l.mode != hybrid.Synced
	p.forgiven, p.nodes = l.forgiven, l.nodes
}

// admit tells the oracle what a process has admitted of a key.
func (f *fleet) admit(place, k int, l *lap) {
	b, a, at := &f.keys[k], &l.items[k], when(f.now)
	f.offered[place][k].add(f.now, a.offered)
	b.units.add(f.now, a.admitted())
	for _, x := range [...]struct {
		units int32
		how   oracle.How
	}{{a.units, oracle.How{}}, {a.apart, oracle.How{Apart: true}}, {a.vague, oracle.How{Lost: true}}} {
		if x.units > 0 {
			b.Admit(place, at, int64(x.units), x.how)
		}
	}
	if a.apart > 0 {
		share := max(b.limit/float64(max(l.nodes, 1)), maxUnits)
		p := &f.procs[place]
		b.cut = append(b.cut, cutOff{at, place, p.number, p.sealed, share})
	}
}

// forgive takes off what Redis has forgiven: of which funnel is not known.
func (f *fleet) forgive(units int64) {
	for k := range f.keys {
		b := &f.keys[k]
		if arith.Of(b.rule).Algorithm != arith.TokenBucket {
			continue
		}
		b.Refund(f.forgiver(), when(f.now), units)
		b.Booked(f.forgiver(), b.Mark(f.forgiver()), when(f.now), 0)
		b.End(f.forgiver())
	}
}

// calm reports whether nothing was wrong with a process in the last slots.
func (f *fleet) calm(p *process, n int) bool { return f.now-p.trouble > n }

// allCalm reports whether nothing was wrong with any node.
func (f *fleet) allCalm(n int) bool {
	for i := range f.procs {
		if p := &f.procs[i]; p.alive && !f.calm(p, n) {
			return false
		}
	}
	return true
}

// report has Redis book what must have been reported by now: nothing while it is not known
// yet what may be booked twice.
func (f *fleet) report(unlisted bool) {
	for place := range f.procs {
		p := &f.procs[place]
		if !p.due(f.now-p.age) || unlisted || !p.alive || !f.calm(p, p.age) {
			continue
		}
		x := &p.waiting[0]
		for k := range f.keys {
			o := &x.items[k]
			p.took[k], p.asked[k] = max(p.took[k], o.took), max(p.asked[k], o.asked)
			if o.units > 0 && !f.keys[k].Losing() { // then nothing of it is certain
				f.keys[k].Booked(place, o.mark, when(f.now), 0)
			}
		}
		p.waiting = p.waiting[1:]
	}
}

// due makes one report of all up to a slot, the first that waits, and tells whether there is
// one. There would be ever more of them as long as something is wrong, and that may be all
// the time on a busy machine.
func (p *process) due(by int) bool {
	n := 0
	for n < len(p.waiting) && p.waiting[n].slot <= by {
		n++
	}
	for i := 1; i < n; i++ {
		p.waiting[i].add(&p.waiting[i-1])
	}
	p.waiting = p.waiting[max(n-1, 0):]
	return n > 0
}

// noteEditions notes what is booked by now.
func (f *fleet) noteEditions() {
	for k := range f.keys {
		f.editions[f.now%ring][k] = f.keys[k].Edition()
	}
}

// hear has nodes know what they must have been answered by now.
func (f *fleet) hear() {
	for place := range f.procs {
		p := &f.procs[place]
		if !p.alive || !f.calm(p, p.age) {
			continue
		}
		for k := range f.keys {
			v := p.took[k]
			if p.asked[k] > 0 {
				v = max(v, p.asked[k]-refreshSlots, p.born)
			}
			if v > p.born && v > f.now-ring {
				f.keys[k].Heard(place, f.editions[v%ring][k])
			}
		}
	}
}
