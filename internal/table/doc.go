// Package table finds the counter of a key. It has an index in bounded memory, and decides which
// counters are dropped when the index is full.
//
// # One check, step by step
//
//  1. The key is hashed under the rule, with secret seeds of the table, to a hash and to a
//     fingerprint of 64 bits (package keyhash).
//  2. The hash selects a shard of the index, a row of eight entries there, the other row of its
//     pair, and a tag of 8 bits. The first entry with this tag is most likely that of the key.
//     Its cache line is prefetched (index.go).
//  3. The clock is read meanwhile, once. All later steps use that reading.
//  4. If the entry has the fingerprint and a lease of exactly this rule, the lease decides by the
//     word of the entry, without a lock (package counter).
//  5. Otherwise the counter decides under its mutex. Its full key is compared.
//  6. If the index has no counter of the key, one is created under the lock of the shard.
//
// The word has all that [Table.AllowBy] needs. For a leaky bucket it also has all that
// [Table.Take] and [Table.Peek] of one unit return. All other calls begin at step 5. So do a Peek
// of a key that was not used since its last report, and all calls for a key without a lease. A
// key has no lease if its rule is a sliding log, if its pair of rows was full, if the numbers of
// its rule are too large, while its leaky bucket takes more than 39 hours to run empty, and while
// a unit does not count as one.
//
// # What is promised
//
//   - A key has one live counter, even if many goroutines create it at once.
//   - A counter with units that were not reported to Redis is dropped only if there is no room and
//     no other may go. Its units are counted ([Stats].Unreported).
//   - A flood of other keys frees no key, and memory stays bounded (see [Options].MaxKeys and
//     MaxRemembered, evict.go, policy.go). What a dropped counter has counted is remembered
//     (traces.go), and the next counter of its key begins with it.
//   - When no counter may be dropped, a new key is decided by what is remembered of it, and
//     remembered again: it has its own limit ([Stats].Overflow).
//
// Not promised: while there is a lease, keys are distinguished by hash and fingerprint alone. Two
// keys that agree in both are decided as one; the chance is below 1 in 2⁶⁴ for a pair of keys.
package table
