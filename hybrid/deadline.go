package hybrid

import "github.com/hybridlimit/hybridlimit/internal/redisstore"

// trips is how many round trips a call may take: to make a connection takes up to four of them (TCP,
// TLS, the greeting, the choice of a database) before the call itself.
const trips = 5

// patient is how many heartbeats without an answer in time it takes, of a server that has answered
// before, until further ones wait longer.
const patient = 3

// deadline returns how long to wait for a call of a server, in ns, after so many heartbeats in a row had
// no answer in time. It is CommandTimeout, or longer if the server is known to be far away, or may
// be. Flights need not find that out: heartbeats do. Once the server has answered the first ones
// wait equally long: one that hangs is to be noticed soon, and mostly the answers were just lost.
func (c *core) deadline(v *server, unanswered int) int64 {
	d, most := max(c.cfg.timeout, trips*v.load.distance.ns()), redisstore.MostPatience*c.cfg.timeout
	if v.health != starting {
		unanswered -= patient
	}
	for ; unanswered > 0 && d < most; unanswered-- {
		d *= 2
	}
	return min(d, most)
}

// beatDeadline returns how long to wait for a heartbeat, which all servers answer.
func (c *core) beatDeadline() (d int64) {
	for _, v := range c.servers {
		d = max(d, c.deadline(v, c.beats.unanswered))
	}
	return d
}

// mostKeys returns how many keys a flight to a server may carry. One that is far away gets fuller
// flights, because the next one leaves only when this one is answered.
func (c *core) mostKeys(v *server) int {
	n := int64(c.cfg.maxBatch)
	return int(min(max(n, n*v.load.distance.ns()/nearby), max(n, int64(c.cfg.farBatch))))
}

// nearby is the distance from which on flights are fuller, in ns: up to there one node reports
// 10,000 keys a second with the default of MaxBatch.
const nearby = 20_000_000
