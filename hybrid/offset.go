package hybrid

// offsetFilter estimates how far Redis' clock is ahead of ours from exchanges
// that Redis has stamped: as in NTP, the stamp was taken somewhere between
// sending and receiving, and the quickest exchange says most. The estimate
// ages, because clocks drift apart; an exchange that contradicts it (another
// server, a clock that was set) replaces it at once, unless it began before
// the one that the estimate rests on had ended: then it may be about the past.
type offsetFilter struct {
	known bool
	ns    int64 // Redis' clock minus ours
	err   int64 // bound of the error when taken
	at    int64 // our time when taken
	lag   int64 // how far our clock was behind one that keeps going, when taken
	step  int64 // by how much the exchange that was taken last has found Redis' clock set ahead or back
}

// offsetDrift is the rate at which an estimate is taken to grow stale: 1 in
// 2,000, beyond what real oscillators show.
const offsetDrift = 2000

// sample takes an exchange and reports whether the estimate has changed. lag says how far
// our clock is behind one that keeps going: if ours stood still, Redis' was not set.
func (f *offsetFilter) sample(sent, recv, server, lag int64) bool {
	if recv < sent {
		return false
	}
	lo, hi := server-recv, server-sent // the offset lies between
	grown := f.grown(recv)
	fresh := offsetFilter{known: true, ns: lo + (hi-lo)/2, err: (hi-lo)/2 + 1000, at: recv, lag: lag}
	agrees := f.holds(sent, recv, server)
	if f.known && (agrees && fresh.err > grown || !agrees && sent < f.at) {
		return false
	}
	changed := !f.known || fresh.ns != f.ns
	if f.known && !agrees {
		fresh.step = fresh.ns - f.ns - (lag - f.lag)
	}
	*f = fresh
	return changed
}

// grown is the bound of the error at our time.
func (f *offsetFilter) grown(now int64) int64 { return f.err + (now-f.at)/offsetDrift }

// holds reports whether an exchange may be with that clock.
func (f *offsetFilter) holds(sent, recv, server int64) bool {
	return f.ns >= server-recv-f.grown(recv) && f.ns <= server-sent+f.grown(recv)
}

// contradicts reports whether an exchange that began since shows another clock.
func (f *offsetFilter) contradicts(sent, recv, server int64) bool {
	return f.known && sent >= f.at && recv >= sent && !f.holds(sent, recv, server)
}

// agrees reports whether two estimates may be of the same clock.
func (f *offsetFilter) agrees(o *offsetFilter) bool {
	later := max(f.at, o.at)
	return max(f.ns-o.ns, o.ns-f.ns) <= f.grown(later)+o.grown(later)
}
