package main

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The oracle judges what was admitted, slot by slot. It is told what each node
// was asked and has admitted, counted by those who asked, and which faults were
// at work; it knows the promises, not the code. Its own memory is bounded: a
// soak may last for days.
//
// # The bound
//
// The README bounds a window by L + Σ min(L, 2·r·(S+δ)): the limit, and what
// the nodes cannot know of each other. The oracle asks that of every single
// admission, with what was really admitted in the place of what may have been:
// if node i admits a unit at time t, then
//
//	what i must know at t, in the window that ends at t ≤ L
//
// and hence admitted ≤ L + what i need not know, which is what is printed.
// What must i know?
//
//   - Of itself, everything that this very process has admitted.
//   - Of another node j, what j has admitted by the time h(i,j,t), its horizon.
//     j reports a unit within R = S + 2δ: an interval, an exchange that may be
//     under way, and its own. So what j admitted by u is booked at u+R if nothing
//     was wrong with j from u to u+R. i asks what is booked when it has admitted
//     something itself; when it has only refused, its view may be 5·S older. It
//     has the answer R later, if nothing was wrong with i meanwhile. With
//     nothing wrong the horizon is therefore about 2·R back; during an outage of
//     i or j it stays where it was when that began, and afterwards until R
//     has passed. δ is measured: the longest exchange of late, and how late
//     timers were.
//   - Nothing of what j had not reported when it crashed: that is lost.
//   - Nothing of what may have been lost with Redis' data. Of what was admitted
//     before the loss the best-informed node i* restores all that it knows: what
//     it need not know may be gone. What is admitted from then on may be
//     absorbed when the nodes raise Redis to what they know, one by one, by
//     maximum. That ends when all have done so: a heartbeat (all data lost) or
//     5·S and a check (one key lost), and a few R, after the last of them is
//     without a fault. Until then no view gets any newer either: a new node
//     learns too little.
//
// Something is wrong with a node while a fault is at work on it or on the
// server, while an exchange fails, and then until it says that it is synced, but
// not for longer than the back-off cap and a little: beyond that it is
// judged as if nothing were wrong, and that it is not synced is a breach.
//
// A node that had no way at all to Redis for long enough to have noticed
// (DegradeAfter exchanges, the first of which a heartbeat may have to begin) is
// on its own: from there on each of its units counts as many times as it
// believes there are nodes, by FairShare. That bounds outages: L/N per node.
//
// How a rule counts what i must know is in views.go.

const (
	slot = 20 * time.Millisecond // how finely time is looked at
	// ring is how many slots are remembered. It must exceed the longest window
	// by the longest outage; what is older is taken for unknown.
	ring = 2048
)

// inSlots returns d in slots, rounded up.
func inSlots(d time.Duration) int { return int((d + slot - 1) / slot) }

// What a bound depends on, in slots.
var (
	refreshSlots = inSlots(5 * interval)
	beatSlots    = inSlots(heartbeat * 11 / 10)
	// noticeSlots is when a node must have noticed that Redis is away: the
	// first failure begins with a heartbeat at the latest. One second is for
	// a machine that has other things to do.
	noticeSlots = inSlots(heartbeat + degradeAfter*(commandTimeout+callGrace) + time.Second)
	// capSlots is when a node must be synced after the last fault.
	capSlots = inSlots(maxBackoff + 5*time.Second)
	// marginSlots is by how much two nodes may misjudge Redis' clock: half
	// an exchange each. Units may be booked, and views end, so much early.
	marginSlots = inSlots(commandTimeout + callGrace)
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

func (h *history) set(s int, v int64) { h[s%ring] = int32(v) }

// ledger is what one node was asked of one key.
type ledger struct {
	units   history // admitted, and part of that which may be lost
	lost    history
	offered history
	asked   history // the latest slot in which it was asked,
	took    history // and in which it admitted something
	view    int     // what was booked by this slot is known to it; 0: nothing
}

// column is one process: a node from its start to its end. Two of a place take
// turns in columns, so that what the last one admitted is not forgotten at once.
type column struct {
	alive    bool
	born     int
	mode     hybrid.Mode
	nodes    int64
	cause    int // the latest slot with a fault, not of its own making,
	trouble  int // and with something wrong
	cutOff   int // since when it has no way to Redis at all; 0: it may have
	age      int // R
	late     bool
	losses   uint64 // of data, that it has noticed
	expect   bool   // it is to notice one
	pardoned int    // it may notice one until then
	booked   history
	keys     []ledger
}

// hole is what may have been lost of a key.
type hole struct {
	open  bool
	asks  bool // only one key is lost: who asks will see
	until int  // the latest slot with a loss
	end   int  // the slot in which all that remains had been told anew
	best  int  // the column that knew most
}

// fact is what is known of a column in a slot.
type fact struct {
	col      int
	mode     hybrid.Mode
	nodes    int
	losses   uint64
	cause    bool // a fault was at work
	complete bool // there was no way to Redis during all of the slot
	age      int
	offered  []int32 // units per key
	units    []int32
}

// turn is all that happened in a slot.
type turn struct {
	born    []int // columns
	facts   []fact
	crashed []int
	left    []int // columns that ended in order: all was reported
	losses  []int // keys; wholeLoss: all
	ill     []int // keys that no node can use, and that are lost
	pardon  []int // columns whose ledger was deleted: they will take it for a loss
	crowd   bool  // the set of nodes was lost
}

const wholeLoss = -1

// oracle judges. All its methods are for one goroutine.
type oracle struct {
	rules  []spec
	cols   []column
	holes  []hole
	gone   []goneUnits // of columns that were used anew
	now    int         // the slot that was judged last
	epoch  int64       // Redis' clock at the beginning of slot 0, ns
	fleet  int         // nodes that there should be
	crowd  int         // when their number changed, or was lost
	whole  bool        // all data is lost, and not all has been told anew
	worst  finding
	agreed int // counts that Redis was asked for
	breach func(format string, args ...any)
}

// goneUnits is what was admitted by nodes that are long gone.
type goneUnits struct{ units, lost int64 }

func newOracle(rules []*limit.Rule, nodes int, breach func(string, ...any)) *oracle {
	o := &oracle{cols: make([]column, 2*nodes), holes: make([]hole, len(rules)), gone: make([]goneUnits, len(rules)), fleet: nodes, breach: breach}
	for _, r := range rules {
		o.rules = append(o.rules, newSpec(r))
	}
	for j := range o.cols {
		o.cols[j].keys = make([]ledger, len(rules))
	}
	return o
}

// oldest is the first slot that is remembered.
func (o *oracle) oldest() int { return max(o.now-ring+1, 0) }

// step judges the next slot.
func (o *oracle) step(t turn) {
	o.now++
	for _, j := range t.born {
		o.birth(j)
	}
	o.carry()
	for i := range t.facts {
		o.observe(&t.facts[i])
	}
	for _, j := range t.crashed {
		o.death(j, false)
	}
	for _, j := range t.left {
		o.death(j, true)
	}
	for _, j := range t.pardon {
		o.cols[j].pardoned = o.now + capSlots
	}
	if t.crowd {
		o.crowd = o.now
	}
	for _, k := range t.losses {
		o.lose(k)
	}
	for _, k := range t.ill {
		o.holes[k].until = o.now
	}
	o.heal()
	o.look()
	o.judge()
	o.judgeCrowd()
}

func (o *oracle) birth(j int) {
	c := &o.cols[j]
	for k := range c.keys {
		g, l := &o.gone[k], &c.keys[k]
		g.units += l.units.at(o.now - 1)
		g.lost += l.lost.at(o.now - 1)
	}
	keys := c.keys
	clear(keys)
	*c = column{alive: true, born: o.now, cause: o.now, trouble: o.now, nodes: 1, keys: keys}
	o.crowd = o.now
}

// death ends a column. What a crashed one had not reported is lost.
func (o *oracle) death(j int, clean bool) {
	c := &o.cols[j]
	if !clean {
		for k := range c.keys {
			o.mark(k, j, int(c.booked.at(o.now)))
		}
	}
	c.alive = false
	o.crowd = o.now
	for k := range o.holes {
		// It was to restore what it knew.
		if h := &o.holes[k]; h.open && h.best == j {
			for m := range o.cols {
				o.mark(k, m, o.oldest())
			}
		}
	}
}

// carry begins a slot with what the last one ended with.
func (o *oracle) carry() {
	s := o.now
	for j := range o.cols {
		c := &o.cols[j]
		c.booked.set(s, c.booked.at(s-1))
		if !c.alive {
			c.booked.set(s, int64(s)) // what it could not report is marked
		}
		for k := range c.keys {
			l := &c.keys[k]
			for _, h := range []*history{&l.units, &l.lost, &l.offered, &l.asked, &l.took} {
				h.set(s, h.at(s-1))
			}
		}
	}
}

// observe takes in what is known of a column.
func (o *oracle) observe(f *fact) {
	s, c := o.now, &o.cols[f.col]
	c.age, c.nodes = f.age, int64(f.nodes)
	o.judgeMode(c, f)
	if f.cause {
		c.cause = s
	}
	if f.cause || f.mode != hybrid.Synced && s-c.cause <= capSlots {
		c.trouble = s
	}
	switch {
	case !f.complete:
		c.cutOff = 0
	case c.cutOff == 0:
		c.cutOff = s
	}
	if o.calm(c, c.age) {
		c.booked.set(s, max(c.booked.at(s), int64(s-c.age)))
	}
	for k := range c.keys {
		l := &c.keys[k]
		l.units.set(s, l.units.at(s)+int64(f.units[k]))
		l.offered.set(s, l.offered.at(s)+int64(f.offered[k]))
		if f.offered[k] > 0 {
			l.asked.set(s, int64(s))
		}
		if f.units[k] > 0 {
			l.took.set(s, int64(s))
		}
	}
}

// calm tells whether nothing was wrong with a column in the last slots.
func (o *oracle) calm(c *column, n int) bool { return o.now-c.trouble > n }

// allCalm tells whether nothing was wrong with any node.
func (o *oracle) allCalm(n int) bool {
	for j := range o.cols {
		if c := &o.cols[j]; c.alive && !o.calm(c, n) {
			return false
		}
	}
	return true
}

// mark notes that what a column has admitted of a key after a slot may be lost.
func (o *oracle) mark(k, j, after int) {
	l := &o.cols[j].keys[k]
	after = max(after, o.oldest())
	for s := after + 1; s <= o.now; s++ {
		l.lost.set(s, l.lost.at(after)+l.units.at(s)-l.units.at(after))
	}
}

// lose notes that Redis has lost a key, or all of them.
func (o *oracle) lose(key int) {
	if key == wholeLoss {
		for j := range o.cols {
			// One that knows something of Redis must see that it is gone. A loss
			// within another need not be told from it.
			c := &o.cols[j]
			c.expect = c.expect || !o.whole && c.alive && o.informed(c)
		}
		o.whole, o.crowd = true, o.now
	}
	for k := range o.holes {
		if key != wholeLoss && k != key {
			continue
		}
		h := &o.holes[k]
		h.until, h.asks = o.now, h.asks || key != wholeLoss
		if !h.open {
			h.open, h.best = true, o.bestInformed(k)
			for j := range o.cols {
				o.mark(k, j, o.survives(k, h.best, j))
			}
		}
	}
}

// informed tells whether a column must know something of Redis.
func (o *oracle) informed(c *column) bool {
	for k := range c.keys {
		if c.keys[k].view > 0 {
			return true
		}
	}
	return false
}

// bestInformed returns the column whose view of a key is the newest, or -1.
func (o *oracle) bestInformed(k int) int {
	best, view := -1, o.oldest()
	for j := range o.cols {
		if c := &o.cols[j]; c.alive && c.keys[k].view > view {
			best, view = j, c.keys[k].view
		}
	}
	return best
}

// survives returns up to which slot a column's units are restored by the one
// that knows most.
func (o *oracle) survives(k, best, j int) int {
	switch {
	case best < 0:
		return o.oldest()
	case best == j:
		return o.now - 1
	}
	return o.horizon(k, best, j)
}

// heal carries open holes on, and closes those that are mended.
func (o *oracle) heal() {
	age := 0
	for j := range o.cols {
		if o.cols[j].alive {
			age = max(age, o.cols[j].age)
		}
	}
	settle := beatSlots + refreshSlots + 3*age
	open := false
	for k := range o.holes {
		h := &o.holes[k]
		if !h.open {
			continue
		}
		for j := range o.cols {
			o.mark(k, j, o.now-1)
		}
		if o.now-h.until > settle && o.allCalm(settle) && (!h.asks || o.asked(k, settle-beatSlots, h.until)) {
			*h = hole{end: o.now}
			continue
		}
		open = open || !h.asks
	}
	if o.whole && !open {
		o.whole = false
		o.judgeLosses()
	}
}

// asked tells whether each node was asked for a key in a slot after the given
// one, and so many slots ago at least.
func (o *oracle) asked(k, ago, after int) bool {
	for j := range o.cols {
		if c := &o.cols[j]; c.alive && int(c.keys[k].asked.at(o.now-ago)) <= after {
			return false
		}
	}
	return true
}

// look lets views get newer.
func (o *oracle) look() {
	for j := range o.cols {
		c := &o.cols[j]
		if !c.alive || !o.calm(c, c.age) {
			continue
		}
		by := o.now - c.age
		for k := range c.keys {
			l := &c.keys[k]
			v := int(l.took.at(by))
			if a := int(l.asked.at(by)); a > 0 {
				v = max(v, a-refreshSlots, c.born)
			}
			if h := &o.holes[k]; !h.open && v > h.end && v > l.view && v > c.born {
				l.view = v
			}
		}
	}
}

// horizon returns up to which slot column i must know what j has admitted; 0 is
// nothing.
func (o *oracle) horizon(k, i, j int) int {
	v := o.cols[i].keys[k].view
	if v <= o.oldest() {
		return 0
	}
	return int(o.cols[j].booked.at(v))
}
