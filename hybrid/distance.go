package hybrid

import "time"

// distance is how far away a server is, as a time: the shortest that an exchange has taken lately.
// A server that is far away is not overloaded. One that is overloaded takes longer than that.
type distance struct {
	least, before int64 // of this period and of the one before, ns; 0: there was no answer
	began         int64 // when this period began, on the timer clock
}

// distancePeriod is after how long a distance that has grown is noticed at the latest, twice, in ns:
// servers move away (a failover to another zone).
const distancePeriod = 5 * int64(time.Second)

// answered notes an exchange that has taken so long, and has ended at now.
func (d *distance) answered(now, took int64) {
	if now-d.began >= distancePeriod {
		d.before, d.least = d.least, 0
		if now-d.began >= 2*distancePeriod {
			d.before = 0
		}
		d.began = now
	}
	if took = max(took, 1); d.least == 0 || took < d.least {
		d.least = took
	}
}

// ns returns the distance, 0 if it is not known.
func (d *distance) ns() int64 {
	if d.before != 0 && (d.least == 0 || d.before < d.least) {
		return d.before
	}
	return d.least
}

// unknown forgets the distance: exchanges fail, and the next answer may come from elsewhere.
func (d *distance) unknown() { d.least, d.before = 0, 0 }
