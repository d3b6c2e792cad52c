// Package local limits rates within one process: a [Limiter] decides with
// counters that live in memory, without I/O and without waiting.
//
// # One check, step by step
//
//  1. The clock is read once; everything below gets that reading.
//  2. The [Table] looks up the key's [Counter] in a ristretto cache. A hit
//     compares the full key, so that two keys never share a counter however
//     their hashes fall.
//  3. On a miss the side table is searched under a lock, and the counter is
//     created there if the key is new.
//  4. The counter decides under its own mutex.
//
// Busy keys are spared most of that. Counters used lately are found before the cache is
// asked (recent.go). One that is asked time and again lends its state (loan.go, terms.go):
// to a slot, which the hash of the key alone leads to (slot.go, lodge.go), or to the [Handle]
// of who has bound the key (pocket.go). Then a check is one swap. Whoever locks the counter for anything but such a check takes the loan back
// first, so that all else works on the counter and need not know of loans. One that
// refuses can be read without its lock (deny.go).
//
// # Why there is a side table
//
// A ristretto cache bounds memory well and limits nothing: a Set becomes
// visible later or never, and a victim is chosen by how often it was asked
// for, not by what would be lost. The side table, a sharded map, holds each
// counter for as long as the cache may not: from its creation until the cache
// is known to hold it, and from its eviction for as long as it would refuse
// somebody or has units to report.
//
// # What is promised
//
//   - A key has one live counter, however many goroutines ask for it first.
//   - A counter with units that its [Link] has not reported is never dropped.
//   - A flood of other keys does not free a key that is being refused, and
//     memory stays bounded (see [Options.MaxKeys]).
//   - When the side table is full of counters that must stay, new keys are
//     decided by shared overflow counters: stricter than they deserve, but
//     neither unlimited nor refused outright.
//
// # What is not promised
//
//   - A counter that has been used but would not refuse one unit now may be
//     forgotten when the table is under pressure ([TableStats.Forgotten]).
//   - Nothing survives the process, and nothing is shared between processes.
//   - The clock's resolution is the resolution of every decision.
//   - Of a funnel that takes more than 39 hours to run empty (see [Handle.By] for which take
//     less) a busy key may have a unit some ns early: 32 of a month, 256 of eight. That does
//     not add up.
package local
