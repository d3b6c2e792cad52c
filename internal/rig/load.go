package rig

import (
	"slices"
	"time"
)

// maxCatchUp is how much of the load a busy machine catches up with, in seconds. What it has
// missed by more is not offered.
const maxCatchUp = 0.05

// Pacer turns a rate into a number of checks per tick.
type Pacer struct {
	last time.Duration // time of the latest tick
	due  float64       // checks that are due and were not offered yet
}

// NewPacer returns a pacer whose load begins now.
func NewPacer() Pacer { return Pacer{last: Now()} }

// Due returns how many checks to offer at a time, at a rate per second since the latest tick.
func (p *Pacer) Due(at time.Duration, rate float64) (checks int) {
	p.due = min(p.due+rate*(at-p.last).Seconds(), rate*maxCatchUp)
	p.last = at
	checks = int(p.due)
	p.due -= float64(checks)
	return checks
}

// Mix is a list of items, each with a share of the load.
type Mix struct {
	edges []float64 // sum of the rates of the items up to each
}

// Add adds an item that is asked for so many times a second.
func (m *Mix) Add(rate float64) { m.edges = append(m.edges, m.Rate()+rate) }

// Rate returns the sum of all rates.
func (m *Mix) Rate() float64 {
	if len(m.edges) == 0 {
		return 0
	}
	return m.edges[len(m.edges)-1]
}

// Pick returns the item at a rate between 0 and [Mix.Rate], or their number above that.
func (m *Mix) Pick(rate float64) int {
	i, _ := slices.BinarySearch(m.edges, rate)
	return i
}

// Percentile returns what so many of 1,000 took at the most, of a sorted list that is not empty.
func Percentile(took []time.Duration, permille int) time.Duration {
	return took[min(len(took)*permille/1000, len(took)-1)]
}
