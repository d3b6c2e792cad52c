package oracle

// loss is data that Redis has lost, from then until all who knew of it have told
// Redis again.
//
// They do so by maximum. What the best informed of them knew is therefore in
// Redis again at the end, but of what is booked meanwhile any part may be
// absorbed: a node that knows less may have booked it first.
type loss struct {
	kept    int64        // what was booked up to this edition is still there
	waiting map[int]bool // nodes that still have to tell what they know
	told    int64        // what the best informed knew that have told it
	since   int64        // the latest edition when data was last lost
	sealed  bool         // a hand-back has begun a generation in which older views do not count
	older   map[int]bool // nodes whose view is of an earlier generation than what has been told
}

// Lose notes that Redis has lost what it has booked of the key after an edition.
func (b *Book) Lose(kept int64) {
	if b.loss == nil {
		b.loss = &loss{kept: kept}
	}
	for node, s := range b.nodes {
		if b.loss.sealed || b.loss.older[node] {
			// Who has heard of the new generation knows what Redis had by then.
			s.view = min(s.view, max(b.loss.kept, b.loss.told))
		}
	}
	b.loss.kept, b.loss.told, b.loss.sealed = min(b.loss.kept, kept), 0, false
	b.loss.waiting, b.loss.older, b.loss.since = map[int]bool{}, map[int]bool{}, b.edition
	for node, s := range b.nodes {
		if s.view > b.loss.kept && !s.ended {
			b.loss.waiting[node] = true
		}
	}
	b.close()
}

// Restored notes that a node has told Redis all that it knew when data was lost.
func (b *Book) Restored(node int) { b.told(node, true) }

// Older notes that a node has yet to tell what it knew before a loss, and that others
// have told what is of a later generation: what the node tells does not count.
func (b *Book) Older(node int) {
	if b.Waiting(node) {
		b.loss.older[node] = true
		b.told(node, false)
	}
}

// Replaced notes that what a node knows has taken the place of what Redis had: all that
// the node has not heard of may be lost.
func (b *Book) Replaced(node int) {
	known := b.series(node).view
	for _, s := range b.nodes {
		s.lose(s.markAt(known), s.booked)
	}
	if known < b.leaky.folded {
		b.leaky.base = 0
	}
}

// Strayed notes that what a node has admitted up to a mark, and had not been booked yet,
// was booked by a server whose data is lost. It may be absorbed by what others have
// booked when the node tells it again.
func (b *Book) Strayed(node int, m Mark) {
	s := b.series(node)
	s.lose(s.booked, m.admitted)
	b.undone = b.undone || b.reset > 0
}

// Astray notes that a node has been told of a later generation by a server whose data will
// be lost, and which has only what was booked up to an edition: that replaces what the
// node knew.
func (b *Book) Astray(node int, edition int64) {
	s := b.series(node)
	s.view = min(s.view, edition)
}

// told notes that nobody need wait for a node any longer.
func (b *Book) told(node int, knew bool) {
	if b.loss == nil || !b.loss.waiting[node] {
		return
	}
	delete(b.loss.waiting, node)
	if knew && !b.loss.sealed {
		b.loss.told = max(b.loss.told, b.series(node).view)
	}
	b.close()
}

// close ends the loss when all have told what they knew. What was booked and was
// known to none of them, and what was booked meanwhile, may be lost.
func (b *Book) close() {
	if len(b.loss.waiting) > 0 {
		return
	}
	safe := max(b.loss.kept, b.loss.told)
	for _, s := range b.nodes {
		s.lose(s.markAt(safe), s.booked)
	}
	b.restored = b.edition
	b.undone = b.undone || b.reset > 0 // or mixed with what has come after it
	if safe < b.leaky.folded {
		b.leaky.base = 0 // a part of it may be lost
	}
	b.loss = nil
}

// Losing reports whether data is lost and not restored yet.
func (b *Book) Losing() bool { return b.loss != nil }

// Waiting reports whether a node still has to tell what it knew before a loss.
func (b *Book) Waiting(node int) bool { return b.loss != nil && b.loss.waiting[node] }

// Informed reports whether a node that still has to tell what it knew has heard
// of Redis since the loss: the next flight that it makes tells all.
func (b *Book) Informed(node int) bool {
	return b.Waiting(node) && b.series(node).heard > b.loss.since
}

// Seal notes that Redis has taken off what a node has handed back. If data is
// lost, what others tell afterwards of what they knew before comes too late: a
// hand-back begins a generation.
func (b *Book) Seal() {
	if b.loss != nil {
		b.loss.sealed = true
	}
}

// Snapshot returns the edition up to which Redis has all that was booked.
func (b *Book) Snapshot() int64 {
	if b.loss != nil {
		return b.loss.kept
	}
	return b.edition
}
