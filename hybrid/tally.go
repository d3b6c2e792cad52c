package hybrid

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/internal/counter"
	"github.com/hybridlimit/hybridlimit/limit"
)

// stripes is the number of cells in which decisions are counted. With so many, goroutines
// rarely share a cache line.
const (
	stripeBits = 6
	stripes    = 1 << stripeBits
	stackBits  = 11 // goroutines whose stacks are in different blocks of 2 KiB may have different cells
)

// tally counts decisions, except those that the fast path of a lease admits: the table
// counts these, see [table.Table.Admitted]. To count a decision for one unit takes one
// atomic addition.
type tally struct {
	cells [stripes]cell
	shown shown
}

// shown is the largest numbers of admitted decisions that were reported, so that a reported
// number never becomes smaller. It could: while a check for several units is being counted,
// sum may see it as several decisions, or as less than none.
type shown struct {
	mu   sync.Mutex
	most Outcomes
}

// atLeast returns o, or what was reported before where that is more.
func (s *shown) atLeast(o Outcomes) Outcomes {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.most
	*m = Outcomes{max(m.Unsynced, o.Unsynced), max(m.Synced, o.Synced), max(m.Degraded, o.Degraded), max(m.Local, o.Local)}
	return *m
}

// cell fills whole cache lines.
type cell struct {
	one    [2][4]atomic.Uint64 // decisions for one unit, [allowed][source group]
	many   [2][4]atomic.Uint64 // decisions for other numbers of units
	units  [4]atomic.Int64     // admitted by the latter
	wrong  atomic.Uint64       // invalid checks
	passed atomic.Uint64       // checks that only a dry run admitted
	_      [16]byte
}

// groupLocal is the column of decisions that are not shared through Redis.
const groupLocal = 3

// groups maps the sources to columns.
var groups = [counter.Sources]uint8{
	limit.SourceLocal: groupLocal, limit.SourceRemote: groupLocal,
	limit.SourceUnsynced: 0, limit.SourceSynced: 1, limit.SourceDegraded: 2,
	limit.SourceInvalid: groupLocal, 6: groupLocal, 7: groupLocal, // there are no such sources
}

// group returns the column of a source.
func group(s limit.Source) uint8 { return groups[s%limit.Source(len(groups))] & groupLocal }

// cell returns the cell of the calling goroutine, chosen by the address of its stack. A
// cell chosen by the key would be contended by all callers of a popular key.
func (t *tally) cell() *cell {
	var here byte
	const golden = 0x9e3779b97f4a7c15 // gives neighbouring stacks different cells
	return &t.cells[uint64(uintptr(unsafe.Pointer(&here)))>>stackBits*golden>>(64-stripeBits)]
}

// count counts a decision for n units.
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

// countOne is count with one unit.
func (t *tally) countOne(allowed bool, s limit.Source) {
	row := 0
	if allowed {
		row = 1
	}
	t.cell().one[row][group(s)].Add(1)
}

// together corrects the sum for one decision for n units that a lease has admitted: leases
// count units.
func (t *tally) together(n int64, src limit.Source) { t.cell().many[1][group(src)].Add(uint64(1 - n)) }

// pass counts a check that only a dry run admitted.
func (t *tally) pass() { t.cell().passed.Add(1) }

// invalid counts an invalid check.
func (t *tally) invalid() { t.cell().wrong.Add(1) }

// sum adds the cells, and the units that leases have admitted, to s. It returns how many of
// the admitted units are reported to Redis: all but those of overflow counters.
func (t *tally) sum(s *Stats, leases [counter.Sources]int64) (shared int64) {
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
