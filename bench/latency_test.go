package bench

import (
	"slices"
	"testing"
	"time"
)

// perTurn is how many checks of each kind one turn of BenchmarkLatency times: a second
// or two of an outage, of which the first tenths are those in which it is noticed.
const perTurn = 1 << 20

// BenchmarkLatency: how long single checks take, in ns, while Redis is healthy
// and while it hangs. The two limiters, each with a server of its own, are
// asked in turn, so that whatever else the machine does hits both. That the
// second server hangs is news to its limiter when the first turn begins: what
// it costs to notice is in the figures.
//
// Every check is timed by itself. What reading the clock adds is reported as
// clock-*: it is in the other figures too, and has not been taken off.
func BenchmarkLatency(b *testing.B) {
	l := evenly(uniform)
	b.Run("hybrid-synced", func(b *testing.B) {
		well, _ := openServed(b, l.keys)
		sick, server := openServed(b, l.keys)
		healthy, hanging := hybridAsks(well, generous).allow, hybridAsks(sick, generous).allow
		warm(l.keys, healthy)
		warm(l.keys, hanging)
		server.FreezeOrSkip(b)

		b.Run("healthy-and-hanging", func(b *testing.B) {
			var ofClock, ofHealthy, ofHanging spread
			nothing := func(string) bool { return true }
			i := 0
			for b.Loop() {
				for range perTurn {
					// Each gets a key that the one before has not just read,
					// and comes second as often as first.
					one, other := l.keys[l.draws[i&(drawn-1)]], l.keys[l.draws[(i+drawn/2)&(drawn-1)]]
					ofClock.add(nothing, one)
					if i&1 == 0 {
						ofHealthy.add(healthy, one)
						ofHanging.add(hanging, other)
					} else {
						ofHanging.add(hanging, one)
						ofHealthy.add(healthy, other)
					}
					i++
				}
			}
			ofClock.report(b, "clock")
			ofHealthy.report(b, "healthy")
			ofHanging.report(b, "hanging")
			b.ReportMetric(0, "ns/op") // of a turn: says nothing
		})
	})
}

// spread holds durations: how often each number of nanoseconds was seen, and by
// themselves those that are longer. Adding one costs the same however many
// there are, and percentiles are exact.
type spread struct {
	count [1 << 14]uint32
	long  []time.Duration
	n     int
	wrong int
}

// add times one check.
func (s *spread) add(ask check, key string) {
	begun := time.Now()
	ok := ask(key)
	took := time.Since(begun)
	if !ok {
		s.wrong++
	}
	s.n++
	if took < time.Duration(len(s.count)) {
		s.count[max(took, 0)]++
	} else {
		s.long = append(s.long, took)
	}
}

// at returns the duration that a share of all durations does not exceed.
func (s *spread) at(share float64) time.Duration {
	rank := min(int(share*float64(s.n)), s.n-1) // this many are shorter
	for d, c := range s.count {
		if rank -= int(c); rank < 0 {
			return time.Duration(d)
		}
	}
	return s.long[rank]
}

func (s *spread) report(b *testing.B, name string) {
	b.Helper()
	slices.Sort(s.long)
	verdict(b, s.wrong, s.n, true)
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}} {
		b.ReportMetric(float64(s.at(p.share)), name+"-"+p.name+"-ns")
	}
}
