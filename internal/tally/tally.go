package tally

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The groups of sources in which decisions are counted.
const (
	Unsynced = iota
	Synced
	Degraded
	Local  // not shared through Redis
	Notice // refused because of another node's notice
	Remote // decided by Redis
	Groups
)

// groupOf maps the sources to groups.
var groupOf = [8]uint8{
	limit.SourceLocal: Local, limit.SourceRemote: Remote,
	limit.SourceUnsynced: Unsynced, limit.SourceSynced: Synced, limit.SourceDegraded: Degraded,
	limit.SourceInvalid: Local, limit.SourceNotice: Notice, 7: Local, // there is no such source
}

// group returns the group of a source.
func group(s limit.Source) uint8 { return groupOf[s%limit.Source(len(groupOf))] % Groups }

// Tally counts the decisions under the rules of one name. To count a decision for one unit
// takes one atomic addition, and so does what a lease has admitted when it ends. Make it with
// [Tallies.Of]. All methods are safe for concurrent use.
type Tally struct {
	hash  uint64 // of the name
	name  string
	cells []cell
	shift uint8 // what is left of 64 bits above it numbers a cell
	shown shown
}

// cell fills whole cache lines.
type cell struct {
	one    [2][Groups]atomic.Uint64 // decisions for one unit, [allowed][group]; all that leases have admitted
	many   [2][Groups]atomic.Uint64 // decisions for other numbers of units
	units  [Groups]atomic.Int64     // admitted by the latter
	wrong  atomic.Uint64            // invalid checks
	passed atomic.Uint64            // checks that only a dry run admitted
	exempt atomic.Uint64            // checks that were not made
	_      [56]byte
}

// stackBits says how large blocks of stack are whose goroutines use the same cell: 2 KiB.
const stackBits = 11

// cell returns the cell of the calling goroutine, chosen by the address of its stack. A
// cell chosen by the key would be contended by all callers of a popular key.
func (t *Tally) cell() *cell {
	var here byte
	const golden = 0x9e3779b97f4a7c15 // gives neighbouring stacks different cells
	return &t.cells[uint64(uintptr(unsafe.Pointer(&here)))>>stackBits*golden>>t.shift]
}

// Count counts a decision for n units.
func (t *Tally) Count(n int64, allowed bool, s limit.Source) {
	if n == 1 {
		t.CountOne(allowed, s)
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

// CountOne is Count with one unit.
func (t *Tally) CountOne(allowed bool, s limit.Source) {
	row := 0
	if allowed {
		row = 1
	}
	t.cell().one[row][group(s)].Add(1)
}

// Leased counts n units that a lease has admitted, as if each were a decision; see Together.
func (t *Tally) Leased(n int64, s limit.Source) { t.cell().one[1][group(s)].Add(uint64(n)) }

// Together corrects what Leased counts for one decision for n units.
func (t *Tally) Together(n int64, s limit.Source) { t.cell().many[1][group(s)].Add(uint64(1 - n)) }

// Charge counts n units that were charged without a decision.
func (t *Tally) Charge(n int64, s limit.Source) { t.cell().units[group(s)].Add(n) }

// Pass counts a check that only a dry run admitted.
func (t *Tally) Pass() { t.cell().passed.Add(1) }

// Invalid counts an invalid check.
func (t *Tally) Invalid() { t.cell().wrong.Add(1) }

// Exempt counts a check that was not made, because nothing limits who asks.
func (t *Tally) Exempt() { t.cell().exempt.Add(1) }

// Sums is what a tally has counted.
type Sums struct {
	Allowed, Denied [Groups]uint64 // decisions
	Units           [Groups]int64  // admitted
	WouldRefuse     uint64         // checks that only a dry run admitted
	Invalid         uint64         // checks
	Exempt          uint64         // checks that were not made
}

// Sum adds up what was counted. The cells are read one after another. No number becomes
// smaller from one call to the next, except that of units.
func (t *Tally) Sum() (s Sums) {
	for i := range t.cells {
		c := &t.cells[i]
		for g := range Groups {
			ones := c.one[1][g].Load()
			s.Denied[g] += c.one[0][g].Load() + c.many[0][g].Load()
			s.Allowed[g] += ones + c.many[1][g].Load()
			s.Units[g] += int64(ones) + c.units[g].Load()
		}
		s.WouldRefuse += c.passed.Load()
		s.Invalid += c.wrong.Load()
		s.Exempt += c.exempt.Load()
	}
	s.Allowed = t.shown.atLeast(s.Allowed)
	return s
}

// shown is the largest numbers of admitted decisions that were reported, so that a reported
// number never becomes smaller. It could: while a check for several units is being counted,
// Sum may see it as several decisions, or as less than none.
type shown struct {
	mu   sync.Mutex
	most [Groups]int64
}

// atLeast returns n, or what was reported before where that is more.
func (s *shown) atLeast(n [Groups]uint64) [Groups]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range n {
		s.most[g] = max(s.most[g], int64(n[g])) // below 0 if a correction was seen before what it corrects
		n[g] = uint64(s.most[g])
	}
	return n
}
