package main

import (
	"testing"
)

// sound returns a measurement that misses nothing.
func sound() *measurement {
	m := &measurement{scenario: scenario{name: "row", bounds: bounds{0.01, 0.05, 0.001}}}
	for of := range groups {
		m.Results[of] = result{Asked: 1000, Due: 1000}
	}
	return m
}

// Each bound is missed by one check more than it allows, and by a group that was not asked.
func TestMissed(t *testing.T) {
	if m := sound(); m.verdict() != "ok" {
		t.Error(m.verdict())
	}
	for of, most := range map[group]int64{honest: 10, fresh: 50, usedUp: 1, nearTried: 1, nearUntouched: 1} {
		m := sound()
		r := &m.Results[of]
		count := &r.Above
		if of == honest || of == fresh {
			count = &r.Wrong
		}
		if *count = most; m.verdict() != "ok" {
			t.Errorf("%s: %s at its bound", habits[of].name, m.verdict())
		}
		if *count = most + 1; m.verdict() != "MISSED: "+habits[of].name {
			t.Errorf("%s: %s above its bound", habits[of].name, m.verdict())
		}
		if *r = (result{}); m.verdict() != "MISSED: "+habits[of].name {
			t.Errorf("%s: %s if nobody has asked", habits[of].name, m.verdict())
		}
	}
}
