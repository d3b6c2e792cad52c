// Package counter counts one key under one rule: it decides checks under a mutex, grants what
// is left to a word that is swapped without a lock, and says what is to be reported to the
// authority.
//
// # From check to authority
//
//  1. An [Entry] has the word and the lease of a key. [Entry.Take] decides by the two without
//     a lock, if it can (entry.go, word.go, lease.go).
//  2. A [Counter] decides under its mutex. It revokes its lease, which adds to it what the
//     lease has admitted, decides, and grants a new lease if it can (counter.go, check.go,
//     grant.go). What it counts is a State of package algorithm: it does not know by which
//     algorithm.
//  3. A counter with a [Link] puts itself into a queue of the link when it has something to
//     report (queue.go, link.go). The reconciler collects its report, and settles it when the
//     authority has answered (sync.go).
//
// Entries belong to an index, which says which counter has which entry; this package knows no
// index.
//
// # What is not promised
//
//   - Keys differ by their fingerprint alone while there is a lease: two keys of one
//     entry that agree in it are decided as one.
//   - The clock's resolution is the resolution of every decision.
//   - A leaky bucket that takes more than 2⁴⁷ ns (39 hours) to run empty counts in steps of
//     2, 4, 8 … ns while it has a lease, and may admit a unit up to one step early: 32 ns for
//     a month, 256 ns for eight. That does not add up. If the time of a unit is no multiple
//     of the step there is no lease: each check takes the mutex. Where the time of a unit is
//     no whole number of ns both begin at less than 39 hours.
package counter
