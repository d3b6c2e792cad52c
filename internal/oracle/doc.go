// Package oracle adds up what all nodes of a fleet have admitted of a key, and
// says how much of that a node, or Redis, must count at least and may count at
// most.
//
// It is told of facts, by a test that sees both ends: who has admitted how much
// and when, which of it has been booked in Redis, which state of Redis a node
// has heard of, and what has gone wrong: data that Redis has lost, nodes that
// have ended, clocks that were set. It never asks a limiter what it counts, has
// no clock and does no I/O.
//
// # What must be counted
//
// A [Book] belongs to one key. Each change of what Redis has booked of it makes
// a new edition. A node must count
//
//	what it has admitted itself since it began to hold the key, and
//	what was booked in the edition that it heard of last,
//
// as far as that is still in the window, or in the leaky bucket. A node that admits a
// unit must therefore find that this sum, the unit included, is no more than the
// limit (and ⌈L/B⌉ in a sliding window of B buckets). What all nodes have
// admitted in a true window is no more than that and what the node had not heard
// of: the bound of the promise, with what was really under way in the place of
// what might have been.
//
// # What need not be counted
//
// Each exception has a cause, a number and an end:
//
//	units before a reset               until they leave the window
//	units handed back                  until then
//	units that a crashed node had not
//	reported                           they are lost
//	units admitted by a clock that was
//	just set                           until they leave the window
//	after a loss: what was booked and
//	is known to no node that tells
//	Redis again what it knows; what is
//	booked before all have done so     until they leave the window
//
// A loss ends when every node that held the key has told Redis again what it
// knew ([Book.Restored]), or is gone. From then on all is as before, but for
// the units named.
//
// # What may be counted
//
// At most what was admitted since the latest reset or had not been booked by
// then, and what was booked twice because Redis had lost the record of it.
package oracle
