package hybrid

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Outcomes counts decisions by what they rest on.
type Outcomes struct {
	Unsynced, Synced, Degraded, Local uint64
}

// Total returns the sum.
func (o Outcomes) Total() uint64 { return o.Unsynced + o.Synced + o.Degraded + o.Local }

// Stats is a snapshot of what a limiter has done since it was made. Its parts
// are read one after another, not at one instant.
type Stats struct {
	Allowed, Denied Outcomes // decisions
	WouldRefuse     uint64   // checks that only a dry run let pass; neither allowed nor denied
	Invalid         uint64   // checks with a negative n or a rule that cannot be used; all denied, and not in Denied
	Conflicts       uint64   // times that a rule was used again after another of its name that counts otherwise
	AdmittedUnits   int64
	AckedUnits      int64 // of those: booked by Redis
	ExpiredUnits    int64 // too old to count by the time Redis could be told
	ForgivenUnits   int64 // of an outage, above MaxDebt: Redis has not booked them; not in AckedUnits
	PendingUnits    int64 // none of these, nor withdrawn: waiting or in flight
	OverflowUnits   int64 // admitted to keys that found no room: never shared
	WithdrawnUnits  int64 // handed back, or their key was reset, before Redis was told of them
	// RefundsGivenUp counts refunds of a key that were not sent to Redis again after
	// it had lost data: they may have been booked before. Their units go on counting.
	RefundsGivenUp uint64
	RefundedUnits  int64 // handed back by Refund, whether or not Redis had been told of them
	LiveCounters   int64 // keys in memory
	Evictions      uint64
	Overflow       uint64 // decisions shared by keys that found no room
	Batches        uint64 // script calls, one per shard, resent ones included
	KeysSynced     uint64 // keys in them
	ResentBatches  uint64 // sent again because their fate was unknown or data was lost
	// Behind is how long the reports of the latest script call had waited for their
	// turn, at the most. Above some milliseconds Redis does not keep up, and views are
	// out of date by so much more than MaxLag.
	Behind         time.Duration
	Heartbeats     uint64
	Failures       uint64 // exchanges with Redis that failed
	Losses         uint64 // losses of data detected, per shard
	RolledBackKeys uint64 // keys of which Redis knew less than before
	Quarantined    uint64 // times that a key alone could not be reconciled
	BadReplies     uint64 // replies that made no sense
	Renames        uint64 // times that another process, such as a clone of this one, was seen to use its name
	StateChanges   uint64
	// Mismatches is how many other layouts (another number of Shards, another version)
	// the latest heartbeat has found in use on the same Redis, under the same prefix:
	// those processes share no limit with this one.
	Mismatches int64
	HookPanics uint64 // panics recovered from OnStateChange or the logger
	// Overshoot is the most units by which Redis has reported a key above its
	// limit.
	Overshoot int64
}

// counters holds what the reconciler counts. Its fields are read concurrently.
type counters struct {
	batches, keysSynced, resent, beats, failures, losses atomic.Uint64
	rolledBack, quarantined, badReplies, stateChanges    atomic.Uint64
	hookPanics, renames                                  atomic.Uint64
	acked, overshoot, mismatches, behind                 atomic.Int64
	returned                                             atomic.Int64 // operations that told Redis of units handed back
	givenUp                                              atomic.Uint64
	refunded, forgiven                                   atomic.Int64
}

// noteOvershoot keeps the largest; only the reconciler writes it.
func (c *counters) noteOvershoot(n int64) {
	if n > c.overshoot.Load() {
		c.overshoot.Store(n)
	}
}

// stripes is the number of cells that decisions are counted in, so that goroutines
// rarely meet on one cache line.
const (
	stripeBits = 6
	stripes    = 1 << stripeBits
	stackBits  = 11 // of an address in a stack of the smallest size
)

// tally counts decisions, except those for one unit that leases admit: these the table
// counts, see [table.Table.Admitted]. Nearly all are for one unit, and cost one atomic addition.
type tally struct {
	cells [stripes]cell
	shown shown
}

// shown is the largest numbers of admitted decisions that were reported. While a check for
// several units is being counted, sum may take it for several decisions, or for fewer than
// none. A reported number must not become smaller after that.
type shown struct {
	mu   sync.Mutex
	most Outcomes
}

func (s *shown) atLeast(o Outcomes) Outcomes {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.most
	*m = Outcomes{max(m.Unsynced, o.Unsynced), max(m.Synced, o.Synced), max(m.Degraded, o.Degraded), max(m.Local, o.Local)}
	return *m
}

// cell fills whole cache lines: decisions for one unit, then for other numbers.
type cell struct {
	one    [2][4]atomic.Uint64 // [allowed][source group]
	many   [2][4]atomic.Uint64
	units  [4]atomic.Int64 // admitted by many
	wrong  atomic.Uint64   // questions that cannot be asked
	passed atomic.Uint64   // by dry runs alone
	_      [16]byte
}

// groupLocal is the column of decisions that concern nobody else.
const groupLocal = 3

// groups maps the sources to columns.
var groups = [table.Sources]uint8{
	limit.SourceLocal: groupLocal, limit.SourceRemote: groupLocal,
	limit.SourceUnsynced: 0, limit.SourceSynced: 1, limit.SourceDegraded: 2,
	limit.SourceInvalid: groupLocal, 6: groupLocal, 7: groupLocal, // that there are none of
}

// group returns the column of a source.
func group(s limit.Source) uint8 { return groups[s%limit.Source(len(groups))] & groupLocal }

// cell returns the cell of the goroutine that asks, which is told by where its stack
// is: that of the key would be fought for by all who ask for a popular one.
func (t *tally) cell() *cell {
	var here byte
	const golden = 0x9e3779b97f4a7c15 // spreads neighbours
	return &t.cells[uint64(uintptr(unsafe.Pointer(&here)))>>stackBits*golden>>(64-stripeBits)]
}

func (t *tally) count(n int64, allowed bool, s limit.Source) {
	if n == 1 {
		t.countOne(allowed, s)
		return
	}
	c := t.cell()
	if !allowed {
		c.many[0][group(s)].Add(1)
		return
	}
	c.many[1][group(s)].Add(1)
	c.units[group(s)].Add(n)
}

// countOne is count of one unit.
func (t *tally) countOne(allowed bool, s limit.Source) {
	row := 0
	if allowed {
		row = 1
	}
	t.cell().one[row][group(s)].Add(1)
}

// together corrects the sum for n units that a lease has admitted at once: they are one
// decision, but leases count units.
func (t *tally) together(n int64, src limit.Source) { t.cell().many[1][group(src)].Add(uint64(1 - n)) }

// pass counts what would have been refused.
func (t *tally) pass() { t.cell().passed.Add(1) }

func (t *tally) invalid() { t.cell().wrong.Add(1) }

// sum adds up into s the cells and the units that leases have admitted. It returns the
// admitted units that are to be reported to Redis: all but those of overflow counters.
func (t *tally) sum(s *Stats, leases [table.Sources]int64) (shared int64) {
	var sums [2][4]uint64
	for src, n := range leases {
		g := group(limit.Source(src))
		sums[1][g] += uint64(n)
		s.AdmittedUnits += n
		if g != groupLocal {
			shared += n
		}
	}
	for i := range t.cells {
		c := &t.cells[i]
		for g := range c.units {
			ones := c.one[1][g].Load()
			units := int64(ones) + c.units[g].Load()
			sums[0][g] += c.one[0][g].Load() + c.many[0][g].Load()
			sums[1][g] += ones + c.many[1][g].Load()
			s.AdmittedUnits += units
			if g != groupLocal {
				shared += units
			}
		}
		s.Invalid += c.wrong.Load()
		s.WouldRefuse += c.passed.Load()
	}
	s.Denied = Outcomes{sums[0][0], sums[0][1], sums[0][2], sums[0][3]}
	s.Allowed = t.shown.atLeast(Outcomes{sums[1][0], sums[1][1], sums[1][2], sums[1][3]})
	return shared
}
