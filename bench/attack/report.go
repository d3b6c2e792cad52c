package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// columns are those of the table.
var columns = []string{
	"attack", "honest refused", "new refused", "used up: above", "near, tried: above", "near, untouched: above",
	"attacker's checks", "evicted / displaced", "heap, MB", "took", "wanted", "",
}

// header begins the table.
func header(out io.Writer) {
	fmt.Fprintf(out, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
}

// row writes a line of the table.
func (m *measurement) row(out io.Writer) {
	r, f := m.Results, m.Figures
	cells := []string{
		m.name, part(r[honest].Wrong, r[honest].Asked), part(r[fresh].Wrong, r[fresh].Asked),
		part(r[usedUp].Above, r[usedUp].Due), part(r[nearTried].Above, r[nearTried].Due), part(r[nearUntouched].Above, r[nearUntouched].Due),
		fmt.Sprint(m.Checks), f.String(),
		fmt.Sprint(m.Heap >> 20), m.took.Round(100 * time.Millisecond).String(), m.bounds.String(), m.verdict(),
	}
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

func (b bounds) String() string {
	return fmt.Sprintf("%g; %g; %g %%", 100*b.honest, 100*b.fresh, 100*b.above)
}

// part writes a share and what it is made of.
func part(some, all int64) string {
	if all == 0 {
		return "none asked"
	}
	return fmt.Sprintf("%.3g %% (%d of %d)", 100*share(some, all), some, all)
}

func share(some, all int64) float64 { return float64(some) / float64(max(all, 1)) }

// missed returns the columns whose figure is above its bound. What nobody has asked for is missed
// too: it shows nothing.
func (m *measurement) missed() (names []string) {
	look := func(name string, some, all int64, most float64) {
		if all == 0 || share(some, all) > most {
			names = append(names, name)
		}
	}
	look("honest", m.Results[honest].Wrong, m.Results[honest].Asked, m.bounds.honest)
	look("new", m.Results[fresh].Wrong, m.Results[fresh].Asked, m.bounds.fresh)
	for _, of := range []group{usedUp, nearTried, nearUntouched} {
		look(habits[of].name, m.Results[of].Above, m.Results[of].Due, m.bounds.above)
	}
	return names
}

func (m *measurement) verdict() string {
	if names := m.missed(); len(names) > 0 {
		return "MISSED: " + strings.Join(names, ", ")
	}
	return "ok"
}

func (f figures) String() string {
	return fmt.Sprintf("%d / %d", f.Evictions, f.Displaced)
}
