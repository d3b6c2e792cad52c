package main

import (
	"sync"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// account is what a process says it has done, and what those who asked it say.
type account struct {
	id      string
	place   int
	counted int64 // units admitted, as those who asked have counted
	stats   inside.Figures
	mode    hybrid.Mode
}

// settled returns the units that cannot be booked any more.
func (a *account) settled() int64 { return a.stats.ExpiredUnits + a.stats.OverflowUnits }

// acked returns the units that Redis has acknowledged: booked, or forgiven.
func (a *account) acked() int64 { return a.stats.BookedUnits + a.stats.ForgivenUnits }

// books compares what the nodes were told with what Redis has booked. Each
// node's ledger in Redis counts the units of its batches, booked or forgiven. It begins anew when
// Redis loses it; what it held then is read in the same instant.
//
// A unit that Redis has acknowledged has been booked, so that
//
//	acked ≤ booked
//
// and one is booked once, but for those that were booked, not acknowledged, and
// then lost: they are booked again. Hence
//
//	booked ≤ admitted − expired + (booked − acked at the latest loss)
//
// at all times, and once nothing is pending the same with acked in the place of
// admitted − expired. What was read earlier and later is used so that the
// inequalities hold although the nodes are not stopped for it.
type books struct {
	mu     sync.Mutex
	before map[string]*pages
	gone   map[string]*account // ended; their ledgers may still be in Redis
	total  tally               // of all that have ended
	breach func(format string, args ...any)
}

// pages is what a node's ledger held before it was lost.
type pages struct {
	booked int64
	twice  int64 // may have been booked twice
	losses int   // since its end
}

// tally is where units have gone.
type tally struct {
	admitted, acked, forgiven, pending, expired, overflow, lost int64
	changes, losses                                             uint64
}

func (t *tally) add(a *account) {
	t.admitted += a.counted
	t.acked += a.stats.BookedUnits
	t.forgiven += a.stats.ForgivenUnits
	t.pending += a.stats.PendingUnits
	t.expired += a.stats.ExpiredUnits
	t.overflow += a.stats.OverflowUnits
	t.changes += a.stats.StateChanges
	t.losses += a.stats.Losses
}

func newBooks(breach func(string, ...any)) *books {
	return &books{before: map[string]*pages{}, gone: map[string]*account{}, breach: breach}
}

// retire closes the account of a process that has ended. What it had pending
// is lost.
func (b *books) retire(a account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.check(&a)
	b.gone[a.id] = &a
	b.total.add(&a)
	b.total.lost += a.stats.PendingUnits
	b.total.pending = 0
}

// check compares what a process says with what those who asked it say.
func (b *books) check(a *account) {
	s := &a.stats
	if s.AdmittedUnits != a.counted {
		b.breach("node %d says that it has admitted %d units, those who asked have counted %d", a.place, s.AdmittedUnits, a.counted)
	}
	if s.PendingUnits < 0 {
		b.breach("node %d: %d units admitted, but %d acknowledged, %d expired and %d never shared",
			a.place, a.counted, a.acked(), s.ExpiredUnits, s.OverflowUnits)
	}
}

func (b *books) page(id string) *pages {
	p := b.before[id]
	if p == nil {
		p = &pages{}
		b.before[id] = p
	}
	return p
}

// audit compares ledgers with the accounts of the living, taken before and
// after they were read. final says that nothing is pending.
func (b *books) audit(before []account, l ledgers, after []account, final bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := map[string]*account{}
	for i := range after {
		known[after[i].id] = &after[i]
		b.check(&after[i])
	}
	for id, units := range l {
		a := known[id]
		if a == nil {
			a = b.gone[id]
		}
		if a == nil {
			b.breach("Redis keeps a ledger of nobody: %s", id)
			continue
		}
		most := a.counted - a.settled()
		if final && known[id] != nil {
			most = a.acked()
		}
		p := b.page(id)
		if booked := p.booked + units; booked > most+p.twice {
			b.breach("node %d: Redis has booked %d units, at most %d were to be (%d admitted, %d acknowledged, %d perhaps twice)",
				a.place, booked, most+p.twice, a.counted, a.acked(), p.twice)
		}
	}
	for i := range before {
		a := &before[i]
		if booked := b.page(a.id).booked + l[a.id]; booked < a.acked() && !b.left(a.id) {
			b.breach("node %d: Redis has booked %d units, but acknowledged %d", a.place, booked, a.acked())
		}
	}
}

// left tells whether a node has ended since: one that leaves in order deletes
// its ledger.
func (b *books) left(id string) bool { return b.gone[id] != nil }

// turn begins new pages: of what the ledgers held, Redis has lost a part, or
// all. before is what the nodes said earlier. It returns how many units of each place
// may be booked once more.
func (b *books) turn(before []account, l, lost ledgers, all bool) (twice map[int]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	twice = map[int]int64{}
	for i := range before {
		p := b.page(before[i].id)
		p.twice = max(p.booked+l[before[i].id]-before[i].acked(), 0)
		twice[before[i].place] = p.twice
	}
	for id, units := range lost {
		b.page(id).booked += units
	}
	if !all {
		return twice
	}
	for id := range b.gone {
		// A batch of a node that has crashed may still be on its way.
		p := b.page(id)
		if p.losses++; p.losses > 1 {
			delete(b.gone, id)
			delete(b.before, id)
		}
	}
	return twice
}

// sum returns where all units have gone so far.
func (b *books) sum(alive []account) tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.total
	for i := range alive {
		b.check(&alive[i])
		t.add(&alive[i])
	}
	return t
}
