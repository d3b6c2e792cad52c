// Package capacity says how often a fleet of hybrid limiters reports, and so what it asks of
// Redis: from how often its keys are asked, the number of nodes, the limits and the two
// times that the nodes go by. The section "Capacity" of docs/operations.md states the same in words.
package capacity

import (
	"math"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Fleet is a number of nodes that share limits. Each is asked for an equal part of the
// checks, at times that have nothing to do with each other (a Poisson process).
type Fleet struct {
	Nodes        int
	Rule         *limit.Rule   // of all keys
	SyncInterval time.Duration // as in hybrid.Options; 0: its default
	MaxLag       time.Duration // the same
	Exchange     time.Duration // how long one exchange with Redis takes
}

// The defaults of hybrid.Options, how long an urgent report waits for company, and how many
// keys travel in one script call.
const (
	syncInterval = 100 * time.Millisecond
	maxLag       = time.Second
	linger       = time.Millisecond
	maxBatch     = 200
)

// tick returns the time between two collections of reports, in seconds.
func (f Fleet) tick() float64 {
	if f.SyncInterval == 0 {
		return syncInterval.Seconds()
	}
	return f.SyncInterval.Seconds()
}

// Lag returns for how long a view may be out of date when nothing is urgent.
func (f Fleet) Lag() time.Duration {
	most := f.MaxLag
	if most == 0 {
		most = maxLag
	}
	tick := time.Duration(f.tick() * float64(time.Second))
	return min(most, max(tick, arith.Of(f.Rule).Horizon()/4))
}

// Reports are how many keys a second nodes report: those that are due, with the next tick,
// and those that are urgent, at once.
type Reports struct{ Due, Urgent float64 }

// All returns the sum of both.
func (r Reports) All() float64 { return r.Due + r.Urgent }

// Key returns how often a second all nodes together report a key that is asked, for one
// unit each time, so many times a second in the whole fleet.
//
// After a report a node waits for a lag C, a whole number of ticks. What it admits meanwhile
// is urgent if it is T units, half of its part of what is left of the limit. So the time
// between two reports of a node that admits a units a second and is asked r times is, on
// average, with P units admitted in a lag,
//
//	E[min(P, T)]/a + e^(−rC)·w + P(P ≥ T)·d
//
// e^(−rC) is how likely it is that nobody asks within the lag, be it to be refused, and w how
// long after that the node is asked again and its next tick comes, τ/(1 − e^(−rτ)): a tick τ
// goes by without a check with a probability of e^(−rτ). d is how long an urgent
// report is on its way, while units do not start another. Where T is 1 each unit is urgent,
// after the lag too: of limits below four units for each node, and of keys that are asked
// for more than their limit, of which nothing is left.
func (f Fleet) Key(rate float64) Reports {
	if rate <= 0 {
		return Reports{}
	}
	nodes := f.nodes()
	admitted, left := f.admits(rate)
	a, r, tick := admitted/nodes, rate/nodes, f.tick()
	urgent := math.Max(1, math.Floor(left/(2*nodes)))
	lag := tick * math.Floor(f.Lag().Seconds()/tick+1e-9)
	units, reached := atMost(a*lag, urgent)
	none, wait := math.Exp(-r*lag), tick/-math.Expm1(-r*tick)
	atOnce := reached
	if urgent == 1 { // then a unit does not wait for a tick after the lag either
		wait += a / r * (1/r + f.delay() - wait)
		atOnce += none * a / r
	}
	reports := nodes / (units/a + none*wait + reached*f.delay())
	return Reports{Due: reports * (1 - atOnce), Urgent: reports * atOnce}
}

// Keys returns the reports of many keys, each asked at a rate of its own.
func (f Fleet) Keys(rates []float64) (sum Reports) {
	for _, rate := range rates {
		r := f.Key(rate)
		sum.Due, sum.Urgent = sum.Due+r.Due, sum.Urgent+r.Urgent
	}
	return sum
}

// Calls returns how many script calls a second carry reports, of the whole fleet, beside
// its heartbeats: of each node one per tick if anything is due, full ones if there is
// more, and one for urgent reports that come within a millisecond, or an exchange.
func (f Fleet) Calls(r Reports) float64 {
	due, urgent, meets := r.Due/f.nodes()*f.tick(), r.Urgent/f.nodes(), max(linger, f.Exchange).Seconds()
	return f.nodes() * ((-math.Expm1(-due)+math.Floor(due/maxBatch))/f.tick() + urgent/(1+urgent*meets))
}

func (f Fleet) nodes() float64 { return float64(max(f.Nodes, 1)) }

// delay returns how long an urgent report is on its way, in seconds.
func (f Fleet) delay() float64 { return (linger + f.Exchange).Seconds() }

// admits returns how many units a second are admitted of a key, and how many are left of
// its limit on average.
func (f Fleet) admits(rate float64) (units, left float64) {
	limits, period := float64(f.Rule.Limit()), f.Rule.Period().Seconds()
	leaks := limits / period
	if arith.Of(f.Rule).Algorithm == arith.TokenBucket {
		leaks = float64(arith.Of(f.Rule).Units) / period
		if rate < leaks {
			return rate, limits // it is empty between two units
		}
		return leaks, 0
	}
	if rate < leaks {
		return rate, limits - rate*period
	}
	return leaks, 0
}

// atMost returns the mean of min(P, most), P being a Poisson variable of that mean, and the
// probability of P ≥ most. The former is the sum of P(P > k) for all k below most.
func atMost(mean, most float64) (units, reached float64) {
	if most > mean+12*math.Sqrt(mean)+40 {
		return mean, 0
	}
	log, above := -mean, 1.0 // of P(P = k), and P(P ≥ k)
	for k := 0.0; k < most; k++ {
		above = math.Max(above-math.Exp(log), 0)
		units += above
		log += math.Log(mean / (k + 1))
	}
	return units, above
}

// Zipf returns how often a second each of so many keys is asked, by a rate for all of them,
// if the n-th in popularity is asked for n^-exponent.
func Zipf(keys int, exponent, rate float64) []float64 {
	list, sum := make([]float64, keys), 0.0
	for i := range list {
		list[i] = math.Pow(float64(i+1), -exponent)
		sum += list[i]
	}
	for i := range list {
		list[i] *= rate / sum
	}
	return list
}
