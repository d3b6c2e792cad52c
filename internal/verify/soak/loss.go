package main

import "slices"

// foretell notes, before the nodes are looked at, which losses they may notice in this
// slot, and which they must notice before long.
func (f *fleet) foretell(t *turn) {
	f.pardon(t)
	if !slices.Contains(t.losses, wholeLoss) {
		return
	}
	for i := range f.procs {
		// One that has heard something from Redis must see that it is gone. A loss
		// within another need not be told from it.
		p := &f.procs[i]
		p.expect = p.expect || !f.whole && p.alive && p.heard()
	}
	f.whole, f.crowd = true, f.now
}

// unlists reports whether Redis may be losing the record of who has reported what.
func (t *turn) unlists() bool { return len(t.pardon) > 0 || slices.Contains(t.losses, wholeLoss) }

// pardon notes who may take for a loss that his ledger was deleted.
func (f *fleet) pardon(t *turn) {
	for _, place := range t.pardon {
		f.procs[place].pardoned = f.now + capSlots
	}
}

// lose notes that Redis has lost a key, or all of them.
func (f *fleet) lose(key int) {
	for k := range f.keys {
		if key == wholeLoss || k == key {
			f.loseKey(k, key != wholeLoss)
		}
	}
}

// heard reports whether a process must have been answered of some key.
func (p *process) heard() bool {
	for _, s := range p.asked {
		if s > p.born {
			return true
		}
	}
	return false
}

func (f *fleet) loseKey(k int, alone bool) {
	b := &f.keys[k]
	for place := range f.procs {
		f.bookAll(k, place)
	}
	if !b.Losing() {
		b.asks = false
		b.Begin(f.witness())
		b.Heard(f.witness(), b.Edition())
	}
	b.until, b.asks = f.now, b.asks || alone
	b.Lose(0)
}

// twice notes that so many units of each place, of which keys is not known, may be
// booked once more: they were booked, but not acknowledged when Redis lost the record
// of that, and others may have told it of them. Of a key, those that need not have
// been acknowledged are no more than those that were not reported for certain.
func (f *fleet) twice(units []int64) {
	for k := range f.keys {
		sum := int64(0)
		for place, n := range units {
			own := int64(0)
			for _, x := range f.procs[place].waiting {
				own += x.items[k].units
			}
			sum += min(n, own)
		}
		if sum > 0 {
			f.keys[k].Twice(when(f.now), sum)
		}
	}
}

// mend ends the losses of which everybody must have told Redis again what he knew.
func (f *fleet) mend() {
	age, open := 0, false
	for i := range f.procs {
		if f.procs[i].alive {
			age = max(age, f.procs[i].age)
		}
	}
	settle := beatSlots + refreshSlots + 3*age
	calm := f.allCalm(settle)
	for k := range f.keys {
		b := &f.keys[k]
		switch {
		case !b.Losing():
		case f.now-b.until > settle && calm && (!b.asks || f.askedSince(k, settle-beatSlots, b.until)):
			f.restored(k)
		default:
			open = open || !b.asks
		}
	}
	if f.whole && !open {
		f.whole = false
		f.judgeLosses()
	}
}

// askedSince reports whether each node was asked for a key after a slot, and so many
// slots ago at least.
func (f *fleet) askedSince(k, ago, after int) bool {
	for place := range f.procs {
		h := &f.offered[place][k]
		if f.procs[place].alive && (f.now-ago <= after || h.at(f.now-ago) == h.at(after)) {
			return false
		}
	}
	return true
}

// restored ends a loss.
func (f *fleet) restored(k int) {
	b := &f.keys[k]
	for place := range f.procs {
		f.bookAll(k, place)
	}
	for place := range f.procs {
		b.Restored(place)
	}
	b.End(f.witness())
	b.mended = f.now
}
