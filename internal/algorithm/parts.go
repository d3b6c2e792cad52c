package algorithm

// parts is what a node knows of something that several nodes count together through Redis: of a leaky
// bucket, or of one bucket of a window. S is what is counted, U are units, and B is what refunds subtract.
// A refund of pending units has just subtracted them. Those of other units are parts of their own.
//
// What a node believes is view, the formula on which all rests. Redis does the same with a report: it
// subtracts the refunds, and then books the units.
type parts[S, U, B any] struct {
	known    S // what Redis has answered
	sentBack B // refunds that were sent to Redis, which has not acknowledged them
	sent     U // units that were sent to Redis, which has not acknowledged them
	back     B // refunds that were not sent yet, of known and sent units
	pend     U // units that were not sent yet
}

// sums is how an algorithm computes with its parts.
type sums[S, U, B any] interface {
	plus(s S, u U, multiplier int64) S // s and then u, each unit of which counts as multiplier units
	minus(s S, b B) S                  // s without b, and nothing if b is more
	join(u, v U) U                     // u and then v
	both(b, c B) B                     // b and c
}

// view returns ((known − sentBack) + sent − back) + pend.
func (p *parts[S, U, B]) view(m sums[S, U, B], multiplier int64) S {
	return m.plus(p.reported(m, multiplier), p.pend, multiplier)
}

// reported is the view without the pending units.
func (p *parts[S, U, B]) reported(m sums[S, U, B], multiplier int64) S {
	return m.minus(p.booked(m, multiplier), p.back)
}

// booked is what Redis should have once it has applied what was sent.
func (p *parts[S, U, B]) booked(m sums[S, U, B], multiplier int64) S {
	return m.plus(m.minus(p.known, p.sentBack), p.sent, multiplier)
}

// left is what is known, without all that is refunded.
func (p *parts[S, U, B]) left(m sums[S, U, B]) S {
	return m.minus(m.minus(p.known, p.sentBack), p.back)
}

// collect begins an exchange: what is pending is sent. It stays sent, however often it is sent again, until an answer
// or one of the methods below ends the exchange.
func (p *parts[S, U, B]) collect(m sums[S, U, B]) {
	*p = parts[S, U, B]{known: p.known, sent: m.join(p.sent, p.pend), sentBack: m.both(p.sentBack, p.back)}
}

// giveBack undoes collect: Redis has not applied what was sent, because it cannot use the key.
func (p *parts[S, U, B]) giveBack(m sums[S, U, B]) {
	*p = parts[S, U, B]{known: p.known, pend: m.join(p.sent, p.pend), back: m.both(p.sentBack, p.back)}
}

// keepSent makes known what was sent: Redis has applied it, but its answer cannot be used.
func (p *parts[S, U, B]) keepSent(m sums[S, U, B]) {
	*p = parts[S, U, B]{known: p.booked(m, 1), pend: p.pend, back: p.back}
}

// dropSent drops what was sent. After an answer the caller has set known to it, or to booked if Redis has lost
// something. After a reset, what was sent is cleared.
func (p *parts[S, U, B]) dropSent() { *p = parts[S, U, B]{known: p.known, pend: p.pend, back: p.back} }
