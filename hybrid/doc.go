// Package hybrid is a rate limiter that decides in the process and shares its
// limits through Redis.
//
// A check ([Limiter.Allow], [Limiter.Take]) looks at a counter in memory: no
// I/O, no waiting, no allocation, well under a microsecond. In the background
// the limiter tells Redis what it has admitted, in batches, and learns what
// the other processes have. Each batch is booked exactly once, whatever gets
// lost on the way; a Redis that has lost data is noticed and told again what
// its clients know.
//
// While Redis is unreachable the limiter goes on by itself: by default each
// unit then counts as many times as there were live nodes, so that the fleet
// still admits about one limit ([FairShare]). What was admitted meanwhile is
// booked when Redis is back, as far as it still counts.
//
// What several processes admit together may exceed a limit by what they admit
// before they hear of each other: each may keep to itself up to half of its part of
// what the limit leaves, for at most [Options].MaxLag. A unit beyond that is
// reported at once. The README states the bound.
//
// For maintainers: core.go, pump.go, replies.go, machine.go and offset.go are
// the reconciler, a state machine without clocks and goroutines; wheel.go holds what
// it has to report later; driver.go runs it; limiter.go is what users see.
package hybrid
