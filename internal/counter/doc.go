// Package counter counts one key under one rule. It decides checks under a mutex, grants a lease
// on what is left to a word that checks swap without a lock, and collects what is to be reported
// to Redis.
//
// # From check to Redis
//
//  1. An [Entry] has the word and the lease of a key. [Entry.Take] decides by these two without a
//     lock, if it can (entry.go, lease.go).
//  2. A [Counter] decides under its mutex. It revokes its lease, which adds to it the units that
//     the lease has admitted. Then it decides, and grants a new lease if it can (counter.go,
//     check.go, grant.go). What it counts is a State of package algorithm, so it does not depend
//     on the algorithm.
//  3. A counter with a [Link] is put into a queue of the link when it has something to report:
//     by itself, or by the first check that its lease admits after a report (queue.go, link.go).
//     The reconciler (package reconcile) collects the report for Redis, and settles it when Redis
//     has answered (sync.go).
//
// Entries belong to an index (package table), which decides which counter has which entry. This
// package does not know the index.
//
// # What is not promised
//
//   - While there is a lease, keys are distinguished by fingerprint alone: two keys of one entry
//     that agree in it are decided as one.
//   - The clock's resolution is the resolution of every decision.
package counter
