package oracle

import "math"

// slowBook says the same as a Book, from a plain list of what has happened.
type slowBook struct {
	rule    Rule
	edition int64
	units   []slowUnits
	refunds []slowRefund
	extras  []extra
	nodes   map[int]*slowNode
	losing  bool
	kept    int64
	told    int64
	waiting map[int]bool
	reset   int64
	undone  bool

	restoredIn int64
}

type slowUnits struct {
	at, n       int64
	node        int
	lost, apart bool
	booked      int64 // edition; 0: not yet
	old, counts bool  // from before the latest reset; but may count all the same
}

type slowRefund struct {
	at, n, booked, bookedAt int64
	node                    int
}

type slowNode struct {
	view, heard int64
	since       int // it knows its units from this one of the list on
	ended       bool
	knew        int64
}

func (b *slowBook) node(node int) *slowNode {
	if b.nodes[node] == nil {
		b.nodes[node] = &slowNode{}
	}
	return b.nodes[node]
}

func (b *slowBook) begin(node int) { *b.node(node) = slowNode{since: len(b.units)} }

func (b *slowBook) end(node int) {
	n := b.node(node)
	if !n.ended {
		n.knew = n.view
	}
	*n = slowNode{since: len(b.units), ended: true, knew: n.knew}
	b.withdraw(node)
	b.restored(node, false)
}

func (b *slowBook) withdraw(node int) {
	for i := range b.units {
		if u := &b.units[i]; u.node == node && u.booked == 0 {
			u.lost = true
		}
	}
}

// book books what a node had admitted and handed back when there were so many
// units and refunds in all.
func (b *slowBook) book(node, units, refunds int, at int64) {
	b.edition++
	for i := range b.units[:units] {
		if u := &b.units[i]; u.node == node && u.booked == 0 {
			u.booked = b.edition
		}
	}
	for i := range b.refunds[:refunds] {
		if r := &b.refunds[i]; r.node == node && r.booked == 0 {
			r.booked, r.bookedAt = b.edition, at
		}
	}
}

func (b *slowBook) hear(node int, edition int64) {
	n := b.node(node)
	n.heard = max(n.heard, edition)
	if !b.losing && edition >= b.restoredIn {
		n.view = max(n.view, edition)
	}
}

func (b *slowBook) set(at, used int64) {
	b.edition++
	b.reset, b.undone = b.edition, used > 0
	for i := range b.units {
		u := &b.units[i]
		u.counts = u.counts && u.old && u.booked == 0 || !u.old && u.booked == 0
		u.old = true
	}
	for i := range b.refunds {
		if b.refunds[i].booked != 0 {
			b.refunds[i].n = 0
		}
	}
	if used > 0 {
		b.units = append(b.units, slowUnits{at: at, n: used, node: nobody, booked: b.edition})
	}
}

func (b *slowBook) lose(kept int64) {
	if !b.losing {
		b.losing, b.kept = true, kept
	}
	b.kept, b.told, b.waiting = min(b.kept, kept), 0, map[int]bool{}
	for node, n := range b.nodes {
		if n.view > b.kept && !n.ended {
			b.waiting[node] = true
		}
	}
	b.close()
}

func (b *slowBook) restored(node int, knew bool) {
	if !b.losing || !b.waiting[node] {
		return
	}
	delete(b.waiting, node)
	if knew {
		b.told = max(b.told, b.node(node).view)
	}
	b.close()
}

func (b *slowBook) close() {
	if len(b.waiting) > 0 {
		return
	}
	for i := range b.units {
		if u := &b.units[i]; u.booked > max(b.kept, b.told) {
			u.lost = true
		}
	}
	b.restoredIn = b.edition
	b.undone = b.undone || b.reset > 0
	b.losing = false
}

// sum counts the units that are in, by the definition of the rule.
func (b *slowBook) sum(p Period, net bool, in func(i int, u *slowUnits) bool) float64 {
	if b.rule.Leak == 0 {
		sum := int64(0)
		for i := range b.units {
			if u := &b.units[i]; u.at > p.From && in(i, u) {
				sum += u.n
			}
		}
		for _, r := range b.refunds {
			if r.at > p.From-b.rule.Width && net {
				sum -= r.n
			}
		}
		return float64(max(sum, 0))
	}
	level, then := 0.0, int64(0)
	r := 0
	var seen []slowRefund
	for _, x := range b.refunds {
		if x.booked != 0 && net {
			seen = append(seen, x)
		}
	}
	// By when they were booked.
	for i := range seen {
		for j := i; j > 0 && seen[j].bookedAt < seen[j-1].bookedAt; j-- {
			seen[j], seen[j-1] = seen[j-1], seen[j]
		}
	}
	off := func(until int64) {
		for ; r < len(seen) && seen[r].bookedAt <= until; r++ {
			level = max(drain(level, b.rule.Leak, seen[r].bookedAt-then)-float64(seen[r].n), 0)
			then = seen[r].bookedAt
		}
	}
	for i := range b.units {
		u := &b.units[i]
		off(u.at - 1)
		if !in(i, u) {
			continue
		}
		level = drain(level, b.rule.Leak, u.at-then) + float64(u.n)
		then = u.at
	}
	off(math.MaxInt64)
	level = drain(level, b.rule.Leak, p.At-then)
	for _, x := range b.refunds {
		if x.booked == 0 && net {
			level -= float64(x.n)
		}
	}
	return max(level, 0)
}

func (b *slowBook) known(node int, p Period) float64 {
	n := b.node(node)
	return b.sum(p, true, func(i int, u *slowUnits) bool {
		own := u.node == node && i >= n.since && !(b.losing && u.booked != 0)
		return !u.lost && !u.old && (own || u.booked != 0 && u.booked <= n.view)
	})
}

func (b *slowBook) stored(p Period) float64 {
	return b.sum(p, true, func(_ int, u *slowUnits) bool {
		return !u.lost && !u.old && u.booked != 0 && (!b.losing || u.booked <= b.kept)
	})
}

// emptied returns since when a leaky bucket that holds all units holds something.
func (b *slowBook) emptied() (at int64) {
	level, then := 0.0, int64(0)
	for i := range b.units {
		u := &b.units[i]
		if u.old {
			continue
		}
		if level = drain(level, b.rule.Leak, u.at-then); level == 0 {
			at = u.at
		}
		level, then = level+float64(u.n), u.at
	}
	return at
}

func (b *slowBook) outage(p Period) float64 {
	least, since := b.edition, p.From+1
	if b.rule.Leak > 0 {
		since = b.emptied()
	}
	for node, n := range b.nodes {
		if node != nobody && !n.ended {
			least = min(least, n.view)
		}
		for i := range b.units {
			if u := &b.units[i]; n.ended && u.node == node && u.apart && !u.old && u.at >= since {
				least = min(least, n.knew)
			}
		}
	}
	return b.sum(p, true, func(_ int, u *slowUnits) bool {
		if u.old {
			return false
		}
		return u.apart || !u.lost && u.booked != 0 && u.booked <= least
	})
}

func (b *slowBook) most(p Period) float64 {
	c := *b
	c.units = nil
	k := 0
	add := func(x extra) { c.units = append(c.units, slowUnits{at: x.at, n: x.units, old: x.edition < b.reset}) }
	for _, u := range b.units {
		for ; k < len(b.extras) && b.extras[k].at <= u.at; k++ {
			add(b.extras[k])
		}
		c.units = append(c.units, u)
	}
	for ; k < len(b.extras); k++ {
		add(b.extras[k])
	}
	undone := b.undone || b.losing && b.reset > 0
	return c.sum(p, false, func(_ int, u *slowUnits) bool { return undone || !u.old || u.counts })
}
