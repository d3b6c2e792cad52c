// Package hybrid is a rate limiter that decides in the process and shares its
// limits through Redis.
//
//	import "github.com/redis/go-redis/v9"
//
//	rdb := redis.NewClient(hybrid.RedisOptions("localhost:6379"))
//	lim, err := hybrid.New(rdb, hybrid.Options{}) // does not wait for Redis
//	…
//	defer lim.Close() // reports what is pending
//
//	perUser := limit.Must(limit.PerMinute("api", 100)) // built once
//	if !lim.Allow(user, perUser) {
//		// refuse; Take says when to come back
//	}
//
// A process needs one [Limiter], for any number of rules and keys. A check
// ([Limiter.Allow], [Limiter.Take]) looks at a counter in memory: no I/O, no
// waiting, no allocation, well under a microsecond. In the background the
// limiter reports to Redis what it has admitted, in batches, and learns what
// the other processes have admitted. Each batch is applied exactly once,
// even if messages are lost. If Redis loses data, its clients notice, and
// send again what they know.
//
// # While Redis is unreachable
//
// The limiter decides alone: by default each unit then costs as many units as
// there were live nodes, so that the fleet still admits about one limit
// ([FairShare]; see [Options].Fallback). What was admitted meanwhile is reported
// when Redis is reachable again, as far as it still counts. [Limiter.State]
// returns the state of the connection, and [Options].Logger gets a line per
// change.
//
// # What is not promised
//
// Several processes together may exceed a limit by what they admit before they
// learn of each other. Each may keep units unreported for at most
// [Options].MaxLag: up to half of its share of what is left of the limit. A unit
// beyond that is reported at once. The process that uses up a key notifies all
// others at once, by Pub/Sub. Usually the excess is one or two per cent; the
// README states the bound. [Limiter.TakeExact] does not exceed limits, at the
// price of a round trip for a check that this process cannot refuse by itself.
// A sliding log is not supported: see [Limiter.CheckRule].
package hybrid
