// Package local limits rates within one process: a [Limiter] decides with counters that live
// in memory, without I/O and without waiting.
//
//	lim, err := local.New(local.Options{})
//	…
//	perUser := limit.Must(limit.PerMinute("per-user", 100))
//	if !lim.Allow(user, perUser) {
//		// refuse
//	}
//
// A check of a known key takes well under a microsecond and allocates nothing. A new key
// takes about a microsecond and two allocations, of a log or a window of many buckets some more.
//
// # What is promised
//
//   - A key has one counter, however many goroutines ask for it first. So each rule is exact, and
//     [limit.Rule.Exact] changes nothing.
//   - A flood of other keys frees no key and refuses no other, and memory stays bounded (see
//     [Options.MaxKeys]). What a key has used is remembered when it has to leave memory, for up to
//     [Options.MaxRemembered] keys.
//
// # What is not promised
//
//   - Above [Options.MaxRemembered], keys that have used the smallest share of their limit are
//     forgotten first ([Stats].Displaced).
//   - Most checks tell keys apart by two hashes of 64 bits with secret seeds: keys that agree
//     in both are decided as one. The chance is below 1 in 2⁶⁴ for a pair of keys.
//   - Nothing survives the process, and nothing is shared between processes. Package hybrid
//     shares.
//   - The clock's resolution is the resolution of every decision.
package local
