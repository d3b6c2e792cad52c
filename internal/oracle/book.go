package oracle

import "slices"

// Rule is how a key is counted. A leaky bucket has a leak, a window has none.
type Rule struct {
	Window int64   // length of the window, ns
	Leak   float64 // units per ns
	// Width is by how much later than a refund the units may have been admitted
	// that it comes off: those in the rest of a window's bucket.
	Width int64
	// Endless says that every question is about all units there ever were, and none about
	// an outage: then it need not be remembered when each of them was.
	Endless bool
}

// Book is the truth about one key. The zero Book is not usable, see [New]; one
// goroutine may use it at a time. All times are on an axis that never goes back,
// in ns.
type Book struct {
	rule     Rule
	edition  int64
	nodes    map[int]*series
	order    []int // the nodes, as they came
	refunds  []refund
	handed   int     // refunds there ever were
	twice    []extra // booked more than once
	loss     *loss
	restored int64 // the edition in which the latest loss ended
	leaky    leakyBucket
	reset    int64 // the edition that the latest Set has made
	undone   bool  // data was lost since
	backAt   int64 // when Redis' clock was last set back
	keep     int   // so many entries of a node are kept at least
}

// keepEntries bounds how often entries are forgotten.
const keepEntries = 1024

// nobody has booked what a Set makes count.
const nobody = -1

// refund is units that were handed back.
type refund struct {
	at, units int64
	node      int
	number    int   // the first is 1
	edition   int64 // in which it was booked; 0: not yet
	booked    int64 // when it was
}

// extra is units that may count at a time though nobody has admitted them then, and the
// edition by then.
type extra struct{ at, units, edition int64 }

// New returns the book of a key that nobody has asked for yet.
func New(r Rule, at int64) *Book {
	b := &Book{rule: r, nodes: map[int]*series{}, keep: keepEntries, leaky: leakyBucket{baseAt: at, fullAt: at, emptied: at}}
	b.series(nobody)
	return b
}

func (b *Book) series(node int) *series {
	s := b.nodes[node]
	if s == nil {
		s = newSeries()
		b.nodes[node] = s
		b.order = append(b.order, node)
	}
	return s
}

// Begin notes that a node begins to hold the key: it knows nothing of it yet.
func (b *Book) Begin(node int) {
	s := b.series(node)
	s.view, s.heard, s.own, s.ended = 0, 0, s.end(), false
}

// End notes that a node does not hold the key any more. What it has not reported
// is lost, if it has not handed it over in order.
func (b *Book) End(node int) {
	s := b.series(node)
	if !s.ended {
		s.knew = s.view
	}
	s.view, s.heard, s.own, s.ended = 0, 0, s.end(), true
	s.lose(s.booked, s.end())
	b.told(node, false)
}

// How says in what state a node admitted something.
type How struct {
	Apart bool // cut off, by its share
	Lost  bool // by a clock that is not valid: nobody need count it
}

// Admit notes that a node has admitted units.
func (b *Book) Admit(node int, at, units int64, how How) {
	s := b.series(node)
	s.add(at, units, how.Lost, how.Apart)
	b.leaky.fill(at, float64(units), b.rule.Leak)
	if b.rule.Leak > 0 {
		b.leaky.events = append(b.leaky.events, event{at: at, node: node, index: s.end() - 1})
		b.fold()
		return
	}
	if b.rule.Endless {
		if len(s.at) >= 2*b.keep {
			s.merge(s.markAt(b.leastView()))
		}
		return
	}
	if old := at - 4*b.rule.Window; s.at[0] < old {
		if s.prune(s.after(old), b.keep) {
			for _, o := range b.nodes {
				if o.ended {
					o.prune(o.after(old), b.keep)
				}
			}
		}
		b.refunds = slices.DeleteFunc(b.refunds, func(r refund) bool { return r.at < old })
		b.twice = slices.DeleteFunc(b.twice, func(x extra) bool { return x.at < old })
	}
}

// Refund notes that a node has handed units back.
func (b *Book) Refund(node int, at, units int64) {
	b.handed++
	b.refunds = append(b.refunds, refund{at: at, units: units, node: node, number: b.handed})
}

// Mark returns what a report of a node's covers that is made up now: all that it
// has admitted, and handed back, so far.
func (b *Book) Mark(node int) Mark { return Mark{b.series(node).end(), b.handed} }

// Mark is a point in what a node has admitted. Refunds are counted for all nodes.
type Mark struct{ admitted, refunds int }

// Booked notes that Redis has booked what a node has admitted up to a mark, by a
// report that was so long under way, or by a clock that stood still for so long
// meanwhile. It returns the new edition.
func (b *Book) Booked(node int, m Mark, at, under int64) int64 {
	b.edition++
	s := b.series(node)
	if b.rule.Leak > 0 {
		// A lease does not tell when its units came: none of them may have leaked.
		units := float64(s.sum(s.all, s.booked, m.admitted))
		b.leaky.most.book(at, units, units+b.rule.Leak*float64(under), b.rule.Leak)
	}
	if m.admitted > s.booked {
		s.booked = m.admitted
		s.bookings = append(s.bookings, booking{b.edition, m.admitted})
	}
	for i := range b.refunds {
		if r := &b.refunds[i]; r.node == node && r.number <= m.refunds && r.edition == 0 {
			r.edition, r.booked = b.edition, at
			if b.rule.Leak > 0 {
				b.leaky.events = append(b.leaky.events, event{at: at, refund: r.units})
			}
		}
	}
	return b.edition
}

// Edition returns the latest edition.
func (b *Book) Edition() int64 { return b.edition }

// Heard notes that a node has heard of an edition. While data is lost, and not
// restored yet, it learns nothing from that which it must know.
func (b *Book) Heard(node int, edition int64) {
	s := b.series(node)
	s.heard = max(s.heard, edition)
	switch {
	case b.loss == nil && edition >= b.restored:
		s.view = max(s.view, edition)
	case b.loss != nil && (b.loss.sealed || b.loss.older[node]): // a new generation replaces what it knew
		s.view = min(s.view, max(b.loss.kept, b.loss.told))
	}
}

// Ignored notes that a node has heard of an edition, and goes on with what it knew: that
// is of a generation that began after all that the edition counts.
func (b *Book) Ignored(node int, edition int64) {
	s := b.series(node)
	s.heard = max(s.heard, edition)
}

// Set notes that everything is forgotten, and that so many units count instead.
// It returns the new edition. What was not booked by then may still be, and if
// Redis loses the edition before anybody has heard of it, all may come back.
func (b *Book) Set(at, used int64) int64 {
	b.edition++
	b.reset, b.undone = b.edition, used > 0 // what was under way may come on top of a Set
	for _, s := range b.nodes {
		s.floor, s.ceiling = s.end(), s.booked
	}
	b.refunds = slices.DeleteFunc(b.refunds, func(r refund) bool { return r.edition != 0 })
	b.leaky = leakyBucket{baseAt: at, fullAt: at, emptied: at, most: b.leaky.most}
	if b.rule.Leak > 0 {
		b.leaky.most.reset(at, float64(used), b.rule.Leak)
	}
	if used > 0 {
		b.Admit(nobody, at, used, How{})
		s := b.nodes[nobody]
		s.booked = s.end()
		s.bookings = append(s.bookings, booking{b.edition, s.end()})
	}
	return b.edition
}

// Withdraw notes that a node counts none of what it has not reported so far: it
// was admitted before a Set of the node's own, by its reckoning.
func (b *Book) Withdraw(node int) {
	s := b.series(node)
	s.lose(s.booked, s.end())
}

// Twice notes that Redis has booked units once more, because it had lost the
// record of who has reported what.
func (b *Book) Twice(at, units int64) {
	b.twice = append(b.twice, extra{at, units, b.edition})
	if b.rule.Leak > 0 {
		b.leaky.most.book(at, float64(units), float64(units), b.rule.Leak)
	}
}

// Raised notes that a node has told Redis again what it knew: a leaky bucket that is empty
// so long after at, however full it is by what was booked. What a node may know must
// be checked apart.
func (b *Book) Raised(at, level int64) { b.leaky.most.raise(float64(at) + float64(level)) }

// Jump notes that Redis' clock has jumped. Ahead: what is booked has leaked so
// much more, but who has not heard of it yet may tell Redis what it knew. Back:
// what is booked leaks so much later, until the clock is put right.
func (b *Book) Jump(at, d int64) {
	if d < 0 {
		b.backAt = at
	}
	if b.rule.Leak == 0 {
		return
	}
	b.leaky.most.jump(d)
	if d > 0 {
		b.leaky.events = append(b.leaky.events, event{at: at, jump: d})
	}
}

// Expired notes that Redis has forgotten a leaky bucket, because it had run empty a
// while ago. Units that are older and booked later do not come on top of it.
func (b *Book) Expired() {
	for _, s := range b.nodes {
		s.lose(s.base, s.booked)
	}
	b.leaky.base = 0
}
