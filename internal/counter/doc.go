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
//  3. A counter with a [Link] is put into a queue of the link when it has something to report:
//     by itself, or by the first check that its lease admits after a report (queue.go,
//     link.go). The reconciler collects its report, and settles it when the authority has
//     answered (sync.go).
//
// Entries belong to an index, which says which counter has which entry; this package knows no
// index.
//
// # What is not promised
//
//   - Keys differ by their fingerprint alone while there is a lease: two keys of one
//     entry that agree in it are decided as one.
//   - The clock's resolution is the resolution of every decision.
package counter
