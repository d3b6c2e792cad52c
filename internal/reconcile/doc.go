// Package reconcile decides what a limiter sends to Redis and when, and what a reply, an error or the
// passing of time changes. It is a state machine: a [Machine] gets events and returns effects, and
// does nothing else. It has no goroutines, no clock and no connection. Package hybrid drives it with
// real ones. The simulator in its tests drives whole fleets with virtual ones, and checks what is
// promised after each step.
//
// Read machine.go first, then event.go. A unit goes through queue.go (when it is reported), pipeline.go
// and flight.go (how), and answer.go (what has become of it). heartbeat.go and health.go say whether
// Redis can be reached.
package reconcile
