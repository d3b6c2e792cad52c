// Package table finds the counter of a key: an index in bounded memory, and which counters
// leave it when it is full.
//
// # One check, step by step
//
//  1. The key is hashed under the rule, with secret seeds of the table, to a hash and to a
//     fingerprint of 64 bits (package keyhash).
//  2. The hash leads to a shard of the index, to a row of eight entries there, the other row of
//     its pair, and a tag of 8 bits. The first entry with this tag is most likely that of the
//     key; its cache line is fetched (index.go).
//  3. The clock is read meanwhile, once. All that follows uses that reading.
//  4. If the entry has the fingerprint and a lease of this very rule, the lease decides by
//     the word of the entry: it refuses, or admits by a compare-and-swap of the word
//     (package counter). No lock is taken, but that of the counter for a moment by the first
//     check after a report, which queues the counter for the next.
//  5. Otherwise the counter decides under its mutex. Its full key is compared.
//  6. If the index has no counter of the key, one is created under the lock of the shard.
//
// The word has all that [Table.AllowBy] needs, and for a leaky bucket all that
// [Table.Take] and [Table.Peek] of one unit report. All other calls begin at step 5, and
// so do a Peek of a key that was not used since its last report, and a key without a lease:
// of a sliding log, of a pair of rows that was full, of a rule whose numbers are too large,
// while a leaky bucket takes more than 39 hours to run empty, or while a unit does not count
// as one. A [Handle] remembers the entry and so begins at step 3.
//
// # Which keys are kept
//
// There is room for MaxKeys counters and a quarter more, at least 4,096 more. When there is
// no room left a new key evicts a counter of its shard that would refuse nobody and has
// nothing to report, preferably one that was not used lately and that the policy does not
// hold (evict.go). The policy is a ristretto cache, which a sweep in the background tells
// which counters were used (policy.go). No check waits for it.
//
// # What is promised
//
//   - A key has one live counter, however many goroutines ask for it first.
//   - A counter with units that its link has not reported is never dropped.
//   - A flood of other keys does not free a key that is being refused, and memory stays
//     bounded (see [Options.MaxKeys]).
//   - When no counter may be evicted new keys share overflow counters: they are limited more
//     strictly than alone, but neither unlimited nor all refused.
//
// # What is not promised
//
//   - A counter that has been used but would not refuse one unit now may be forgotten when
//     there is no room ([Stats].Forgotten).
//   - Keys are told apart by hash and fingerprint alone while there is a lease: two keys that
//     agree in both are decided as one. The chance is below 1 in 2⁶⁴ for a pair of keys.
//   - Nothing survives the process, and nothing is shared between processes.
//   - The clock's resolution is the resolution of every decision.
package table
