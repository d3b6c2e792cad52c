package main

import (
	"slices"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

// The data may be gone at any moment while its fault is at work, and so it is in each slot
// of it: also when it is not known yet when that will be over.
func TestLossesOfASlot(t *testing.T) {
	const from, to = 5*slot + slot/2, 8*slot + slot/2
	for _, until := range []time.Duration{to, forever} {
		for _, kind := range []kind{ran, lost, pardoned, crowded} {
			r := &run{traffic: newTraffic(1), faults: []*fault{{node: everyone, from: from, to: until, key: noKey, kind: kind, on: 3}}}
			b := newGatherer(r)
			for s := range 20 {
				x := turn{}
				b.faults(s, &x)
				now := s >= 6 && (s <= 9 || until == forever)
				if slices.Contains(x.losses, 3) != (now && kind == lost) || slices.Contains(x.pardon, 3) != (now && kind == pardoned) || x.crowd != (now && kind == crowded) {
					t.Errorf("kind %v until %v, slot %d: %+v", kind, until, s, x)
				}
			}
		}
	}
}

// A fault is remembered until its slots have been judged, which a busy machine does late.
func TestFaultsOfSlotsToBeJudged(t *testing.T) {
	r := &run{traffic: newTraffic(1), faults: []*fault{{to: time.Second}, {to: forever}}}
	for _, c := range []struct {
		judged time.Duration
		want   int
	}{{0, 2}, {time.Second, 2}, {time.Minute, 1}} {
		if r.forgetFaults(c.judged); len(r.faults) != c.want {
			t.Errorf("judged up to %v: %d faults are left, want %d", c.judged, len(r.faults), c.want)
		}
	}
}

// What a limiter says after a slot is over may be of a later one.
func TestLapsThatAreReadLate(t *testing.T) {
	const nobody = "127.0.0.1:1"
	lim, rdb, err := rig.Start(nobody, rig.Hook{Ended: func(rig.Exchange) {}}, hybrid.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	defer lim.Shutdown(t.Context())
	before := said{mode: hybrid.Synced, nodes: 7, losses: 7}
	r := &run{traffic: newTraffic(1), start: rig.Now() - time.Hour}
	n := &node{run: r, lim: lim, lap: lap{said: before}}
	now := r.slotOf(rig.Now())
	if late := n.newLap(now - 1); late.said != before || late.slot != now-1 {
		t.Errorf("read late: %+v", late)
	}
	if in := n.newLap(now + inSlots(time.Hour)); in.said == before || in.losses != 0 {
		t.Errorf("read in its slot: %+v", in)
	}
}
