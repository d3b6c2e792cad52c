package main

import (
	"slices"
	"testing"
	"time"
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
