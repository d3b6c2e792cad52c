package oracle

// leakyBucket is what a book needs of a rule that leaks. The level of a leaky bucket
// depends on when each unit came: it is computed from the events, of which those
// that every node knows are folded into a level.
type leakyBucket struct {
	events  []event
	base    float64 // the level before the first event,
	baseAt  int64   // then
	folded  int64   // a node that has heard of an earlier edition does not know all of base
	full    float64 // the level of a leaky bucket that holds all that was ever admitted,
	fullAt  int64   // then
	emptied int64   // and when it was last empty
	most    merged  // what Redis may hold at the most
}

// event is an admission, a refund that was booked then, or a jump of Redis' clock
// ahead.
type event struct {
	at           int64
	node, index  int
	refund, jump int64
}

// off reports whether an event takes off, and what is left of a level then.
func (e *event) off(level, leak float64) (left float64, ok bool) {
	return max(level-float64(e.refund)-leak*float64(e.jump), 0), e.refund > 0 || e.jump > 0
}

// foldAt is how many events there are before some are folded.
const foldAt = 128

// drain returns what is left of a level after a time.
func drain(level, leak float64, d int64) float64 { return max(level-leak*float64(d), 0) }

// fill adds units to the leaky bucket that holds everything.
func (f *leakyBucket) fill(at int64, units, leak float64) {
	f.full = drain(f.full, leak, at-f.fullAt)
	if f.full == 0 {
		f.emptied = at
	}
	f.full, f.fullAt = f.full+units, at
}

// fold folds the oldest events, up to the first that some node does not know.
func (b *Book) fold() {
	f := &b.leaky
	if len(f.events) < foldAt || len(f.events)%(foldAt/2) != 0 || b.loss != nil {
		return
	}
	least := b.leastView()
	b.cut(least)
	k := 0
	for ; k < len(f.events)/2; k++ {
		e := &f.events[k]
		s := b.nodes[e.node]
		if e.refund == 0 && e.jump == 0 && e.index >= s.cut {
			break
		}
		f.base = drain(f.base, b.rule.Leak, e.at-f.baseAt)
		if left, ok := e.off(f.base, b.rule.Leak); ok {
			f.base = left
		} else {
			f.base += float64(s.sum(s.low, e.index, e.index+1))
		}
		f.baseAt = e.at
	}
	if k > 0 {
		f.events = append(f.events[:0], f.events[k:]...)
		f.folded = max(f.folded, least) // a node that has joined since knows nothing of the base
		b.pruneFolded()
	}
}

// pruneFolded has each series forget the entries that are folded: no event is about them any
// more.
func (b *Book) pruneFolded() {
	first := map[int]int{}
	for i := range b.leaky.events {
		e := &b.leaky.events[i]
		if _, later := first[e.node]; !later && e.refund == 0 && e.jump == 0 {
			first[e.node] = e.index
		}
	}
	for node, s := range b.nodes {
		index, ok := first[node]
		if !ok {
			index = s.end()
		}
		s.prune(index, b.keep)
	}
}

// level returns the level of a leaky bucket that the units of each event come to. base
// says that it holds the folded ones.
func (b *Book) level(at int64, base bool, units func(s *series, index int) int64) float64 {
	f, level, then := &b.leaky, 0.0, b.leaky.baseAt
	if base {
		level = f.base
	}
	for i := range f.events {
		e := &f.events[i]
		level = drain(level, b.rule.Leak, e.at-then)
		then = e.at
		if left, ok := e.off(level, b.rule.Leak); ok {
			level = left
		} else {
			level += float64(units(b.nodes[e.node], e.index))
		}
	}
	return drain(level, b.rule.Leak, at-then)
}
