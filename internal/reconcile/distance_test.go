package reconcile

import (
	"testing"
	"time"
)

// A distance is the shortest answer of the last one or two periods. One that has grown is noticed.
func TestDistance(t *testing.T) {
	const ms = int64(time.Millisecond)
	var d distance
	for i, c := range []struct{ now, took, want int64 }{
		{distancePeriod, 40 * ms, 40 * ms}, {distancePeriod + 1, 90 * ms, 40 * ms}, {distancePeriod + 2, 30 * ms, 30 * ms},
		{2*distancePeriod + 1, 150 * ms, 30 * ms}, {3*distancePeriod + 2, 150 * ms, 150 * ms}, {9 * distancePeriod, 200 * ms, 200 * ms},
	} {
		if d.answered(c.now, c.took); d.ns() != c.want {
			t.Errorf("%d: %v, want %v", i, time.Duration(d.ns()), time.Duration(c.want))
		}
	}
	if d.unknown(); d.ns() != 0 {
		t.Errorf("%v after an outage", time.Duration(d.ns()))
	}
}

// Fault 93: deadlines and flights by how far away a server is.
func TestDeadlines(t *testing.T) {
	const ms = int64(time.Millisecond)
	c := &Machine{cfg: Config{CommandTimeout: 250 * ms}}
	for _, tt := range []struct {
		health      health
		away        int64
		unanswered  int // heartbeats
		flight      int // how many times its deadline has doubled
		beat, calls int64
		keys        int
	}{
		{up, ms, 0, 0, 250 * ms, 250 * ms, 200}, {up, ms, patient, 1, 250 * ms, 500 * ms, 200}, {up, ms, patient + 1, 2, 500 * ms, 1000 * ms, 200},
		{down, ms, 20, 3, 2000 * ms, 2000 * ms, 200}, {up, ms, 0, 9, 250 * ms, 2000 * ms, 200},
		{starting, 0, 0, 0, 2000 * ms, 250 * ms, 200}, {starting, 0, 9, 0, 2000 * ms, 250 * ms, 200},
		{up, 40 * ms, 0, 0, 250 * ms, 250 * ms, 400}, {up, 150 * ms, 0, 0, 750 * ms, 750 * ms, 1000}, {up, 150 * ms, 0, 1, 750 * ms, 1500 * ms, 1000},
		{up, 900 * ms, 0, 0, 2000 * ms, 2000 * ms, 1000},
	} {
		v := &server{health: tt.health, load: newLoad(&c.cfg)}
		v.load.distance.answered(1, tt.away)
		if tt.away == 0 {
			v.load.distance.unknown()
		}
		c.servers, c.beats.unanswered = []*server{v}, tt.unanswered
		if beat, calls, keys := c.beatDeadline(), c.deadline(v, tt.flight), c.mostKeys(v); beat != tt.beat || calls != tt.calls || keys != tt.keys {
			t.Errorf("%+v: %v, %v and %d keys", tt, time.Duration(beat), time.Duration(calls), keys)
		}
	}
}
