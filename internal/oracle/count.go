package oracle

import "math"

// Period is what a question is about: now, and since when units count. A leaky bucket
// does not mind when units began to count.
type Period struct{ From, At int64 }

// leastView returns the oldest edition that is the latest for some node.
func (b *Book) leastView() int64 {
	least := int64(math.MaxInt64)
	for node, s := range b.nodes {
		if node != nobody && !s.ended {
			least = min(least, s.view)
		}
	}
	return min(least, b.edition)
}

// cut has a question be about what was booked in an edition.
func (b *Book) cut(edition int64) {
	for _, s := range b.nodes {
		s.cut, s.mine = s.markAt(edition), s.end()
	}
}

// Known returns how many units a node must count at least.
func (b *Book) Known(node int, p Period) float64 {
	me := b.series(node)
	b.cut(me.view)
	me.mine = me.own
	if b.loss != nil {
		me.mine = max(me.mine, me.booked)
	}
	return b.count(p, me.view >= b.leaky.folded)
}

// Stored returns how many units Redis must count at least.
func (b *Book) Stored(p Period) float64 {
	edition := b.edition
	if b.loss != nil {
		edition = b.loss.kept
	}
	b.cut(edition)
	return b.count(p, edition >= b.leaky.folded)
}

// count adds up what each series says is to be counted.
func (b *Book) count(p Period, folded bool) float64 {
	if b.rule.Leak > 0 {
		return b.net(p, b.level(p.At, folded, (*series).counted))
	}
	sum := int64(0)
	for _, s := range b.nodes {
		from := max(s.after(p.From), s.floor)
		sum += s.sum(s.low, from, s.cut) + s.sum(s.low, max(from, s.cut, s.mine), s.end())
	}
	return b.net(p, float64(sum))
}

// net subtracts what was handed back: of a window what was since units count,
// and what was taken off since, of any bucket, by a clock that had been set back
// meanwhile; of a leaky bucket what has not been taken off yet.
func (b *Book) net(p Period, units float64) float64 {
	for i := range b.refunds {
		r := &b.refunds[i]
		off := r.at > p.From-b.rule.Width || r.booked > p.From && r.at <= b.backAt
		if b.rule.Leak > 0 {
			off = r.edition == 0
		}
		if off {
			units -= float64(r.units)
		}
	}
	return max(units, 0)
}

// leastShared is leastView, and what nodes that have ended knew. What such a node has
// admitted while it was cut off may come on top of what it did not know, until that is
// out of the window or has leaked.
func (b *Book) leastShared(p Period) int64 {
	least, since := b.leastView(), p.From
	if b.rule.Leak > 0 {
		since = b.leaky.emptied - 1
	}
	for _, s := range b.nodes {
		if s.ended && s.cutOff > s.floor && s.cutOffAt > since {
			least = min(least, s.knew)
		}
	}
	return least
}

// Outage returns how many units count of those that every node knows and those
// that were admitted by nodes that were cut off: what the share that each has
// in an outage bounds. The others were admitted before their node had noticed.
func (b *Book) Outage(p Period) float64 {
	least := b.leastShared(p)
	b.cut(least)
	if b.rule.Leak > 0 {
		return b.net(p, b.level(p.At, least >= b.leaky.folded, (*series).shared))
	}
	sum := int64(0)
	for _, s := range b.nodes {
		from := max(s.after(p.From), s.floor)
		sum += s.sum(s.apart, from, s.end()) + s.sum(s.near, from, s.cut)
	}
	return b.net(p, float64(sum))
}

// Total returns how many units all nodes have admitted.
func (b *Book) Total(p Period) float64 {
	if f := &b.leaky; b.rule.Leak > 0 {
		return drain(f.full, b.rule.Leak, p.At-f.fullAt)
	}
	sum := int64(0)
	for _, s := range b.nodes {
		sum += s.sum(s.all, max(s.after(p.From), s.floor), s.end())
	}
	return float64(sum)
}

// Most returns how many units may count at the most, for anybody who has heard of the
// latest reset.
func (b *Book) Most(p Period) float64 {
	return b.most(p, b.undone || b.loss != nil && b.reset > 0)
}

// Ever returns how many units may count at the most, for anybody.
func (b *Book) Ever(p Period) float64 { return b.most(p, true) }

// Pending returns how many units a node has admitted that are not booked.
func (b *Book) Pending(node int) float64 {
	s := b.series(node)
	return float64(s.sum(s.all, s.booked, s.end()))
}

func (b *Book) most(p Period, undone bool) float64 {
	if m := &b.leaky.most; b.rule.Leak > 0 {
		empty := m.empty
		if undone {
			empty = m.never
		}
		return max((empty-float64(p.At))*b.rule.Leak, 0)
	}
	sum := int64(0)
	for _, s := range b.nodes {
		from := s.after(p.From)
		if !undone {
			from = max(from, s.ceiling)
		}
		sum += s.sum(s.all, from, s.end())
	}
	for _, x := range b.twice {
		if x.at > p.From && (undone || x.edition >= b.reset) {
			sum += x.units
		}
	}
	return float64(sum)
}

// Emptied returns since when the true leaky bucket holds something without a pause.
func (b *Book) Emptied() int64 { return b.leaky.emptied }
