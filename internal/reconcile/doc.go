// Package reconcile decides what a limiter sends to Redis and when, and what a reply, an error or the
// passing of time changes. It is a state machine: a [Machine] gets events and returns effects, and
// does nothing else. It has no goroutines, no clock and no connection. Package hybrid supplies real
// ones. The simulator in internal/sim supplies virtual ones to many machines, and checks the guarantees
// after each step.
//
// Read machine.go first, then event.go. An admitted unit passes through queue.go (when it is reported),
// pipeline.go and flight.go (how it is sent), and answer.go (whether Redis has applied it). heartbeat.go
// and health.go decide whether Redis can be reached.
package reconcile
