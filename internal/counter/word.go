package counter

// The word of an entry is what most checks read and swap. From the top:
//
//	48 bits  time
//	 1 bit   set: a check that admits puts the counter into the queue of the reconciler
//	11 bits  units left of the lease; 0: there is no lease, ask the counter
//	 4 bits  generation of the lease, which wraps
//
// The time counts from the base of the lease. For a leaky bucket it is when the bucket will
// be empty, in ticks of the lease. For a window it is two times: when the key was asked last,
// and when the lease ends (see windowTime). For a refusal it is when that ends, in ns.
const (
	wordUnits, wordTime = 4, 16
	unqueued            = 1 << (wordTime - 1)
	unitsMask           = unqueued>>wordUnits - 1
	timeMost            = 1<<(64-wordTime) - 1
	generationMask      = 1<<wordUnits - 1

	// unitsRefused in place of the units marks a refusal. A lease has at most leaseMost units.
	unitsRefused = unitsMask
	leaseMost    = unitsRefused - 1
)

func unitsOf(w uint64) uint32 { return uint32(w >> wordUnits & unitsMask) }
func timeOf(w uint64) int64   { return int64(w >> wordTime) }
func refuses(w uint64) bool   { return unitsOf(w) == unitsRefused }

// newWord returns a word of generation 0.
func newWord(time int64, units uint32) uint64 {
	return uint64(time)<<wordTime | uint64(units)<<wordUnits
}

// spend returns w with a new time and n units fewer.
func spend(w uint64, time, n int64) uint64 {
	return uint64(time)<<wordTime | w&(1<<wordTime-1) - uint64(n)<<wordUnits
}
