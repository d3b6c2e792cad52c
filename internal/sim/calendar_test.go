package sim

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/limittest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// withCalendars makes quotas of most of the rules that are windows: for a day, a week or a month that begins
// within the run, by the clock of one of the servers.
func (s *sim) withCalendars() {
	rng := rand.New(rand.NewPCG(s.seed, 0xca1))
	for i, r := range s.rules {
		begins := s.servers[rng.IntN(len(s.servers))].time() + rng.Int64N(30_000*ms)
		if arith.Of(r).Algorithm == arith.TokenBucket || rng.IntN(4) == 0 {
			continue
		}
		calendar := limit.Calendar{Unit: limit.Unit(1 + rng.IntN(3)), Zone: midnightAt(begins)}
		switch day := time.Unix(0, begins).In(calendar.Zone); calendar.Unit {
		case limit.Week:
			calendar.First = (int(day.Weekday())+6)%7 + 1
		case limit.Month:
			calendar.First = day.Day()
		}
		quota := limit.Must(limit.Quota("d"+r.Name(), r.Limit(), calendar))
		s.rules[i], s.plan.rules[i] = quota, quota
	}
}

// midnightAt returns a time zone in which a day begins at this time, in ns, or in the second before.
func midnightAt(at int64) *time.Location {
	const day = int64(24 * time.Hour / time.Second)
	return time.FixedZone("midnight", int(day/2-(at/int64(time.Second)+day/2)%day))
}

// TestSimCalendar plays seeds in which periods of calendars begin.
//
// Fault 105: a period begins during all other faults.
func TestSimCalendar(t *testing.T) {
	simSeeds(t, nil, seedRange(*simSeed, *simRuns), (*sim).withCalendars)
}

// TestSimCalendarScripts is the same with exact calls, and with the real scripts beside the model.
func TestSimCalendarScripts(t *testing.T) {
	oneGoroutine(t)
	if strconv.IntSize < 64 {
		t.Skip("the embedded Redis answers integers that fit into an int: needs 64 bits")
	}
	simSeeds(t, miniHost, seedRange(*simSeed, max(*simRuns/20, limittest.Cases(3, 2))), (*sim).withCalendars, (*sim).withExact)
}
