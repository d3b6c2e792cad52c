// Package remote is a rate limiter that asks Redis for each check: exact over any
// number of processes, at one round trip per check, or for several checks together
// ([Limiter.TakeAll]).
//
//	lim, err := remote.New(rdb, remote.Options{}) // rdb is a client of go-redis
//	…
//	perUser := limit.Must(limit.PerMinute("api", 100)) // built once
//	res, err := lim.Take(ctx, user, perUser, 1)
//	switch {
//	case err != nil: // Redis did not answer: your decision, see [Classify]
//	case !res.Allowed: // refuse; res.RetryAfter says when to come back
//	}
//
// A [Limiter] answers for all algorithms of package limit. A caller who would rather
// wait than be refused can queue ([Limiter.Wait], [Limiter.Reserve]). The queue is
// in Redis and is shared by the callers of all processes.
//
// Package hybrid uses the same counters: each package sees the units that the other
// books, if both have the same KeyPrefix and Shards.
//
// # What is kept in Redis
//
// All times are Redis' own, read inside the script; no script and no caller
// compares clocks. A token bucket is one string: its generation and the time at which
// it will be empty (the theoretical arrival time of the generic cell rate
// algorithm, ITU-T I.371). A window is one string: its generation and the units
// per bucket. A log is a sorted set with one member per unit. Each write sets a
// time to live in the same command, and nothing is kept longer than it can matter.
//
// A counter with a value that none of these scripts writes is left as it is, and
// the call fails with a [limit.KeyError].
//
// # What is not promised
//
// Redis may lose what it has acknowledged (a restart without persistence, a
// failover to a replica that lagged, eviction). A Limiter does not notice. Set
// maxmemory-policy to noeviction or volatile-ttl: other policies evict counters
// that are still needed.
package remote
