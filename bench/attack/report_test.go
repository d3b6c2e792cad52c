package main

import (
	"encoding/json"
	"strings"
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

func TestRow(t *testing.T) {
	m := sound()
	m.Results[honest].Wrong, m.Checks, m.Heap = 15, 42, 3<<20
	m.Figures = figures{unknown, 1, 2}
	var b strings.Builder
	m.row(&b)
	want := "| row | 1.5 % (15 of 1000) | 0 % (0 of 1000) | 0 % (0 of 1000) | 0 % (0 of 1000) | 0 % (0 of 1000) | 42 | ? / 1 / 2 | 3 | 0s | 1; 5; 0.1 % | MISSED: honest |\n"
	if b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
}

// What has come of a row is the same after it was in a file.
func TestOutcomeInFile(t *testing.T) {
	o := outcome{Checks: 1, Figures: figures{2, 3, 4}, Heap: 5}
	for of := range groups {
		o.Results[of] = result{6, 7, 8, 9 + int64(of)}
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var back outcome
	if err := json.Unmarshal(text, &back); err != nil || back != o {
		t.Errorf("%v, %+v of %s", err, back, text)
	}
}
