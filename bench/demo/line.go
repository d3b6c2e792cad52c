package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// line is what the last line per second has shown, so that the next can show
// what is new.
type line struct {
	at       time.Duration
	admitted []int64
	sent     int64
}

func (s *show) header() {
	fmt.Fprint(s.out, wrapped(fmt.Sprintf("%d nodes share %s; each has %d keys and %.0f checks/s, the hottest key is offered %g times its limit.",
		s.nodes, s.world.name, s.keys, s.traffic.rate(), s.overload)))
	fmt.Fprint(s.out, wrapped(fmt.Sprintf("Rule: %v. Hot key: what it was admitted in a window, of its limit. Pending: units that Redis has not confirmed. "+
		"Checks are timed one in %d, with the reading of the clock in them.", s.rule, sampled)))
	fmt.Fprintln(s.out)
	s.columns("time", "phase", "admitted/s", "hot key", "state of the nodes", "pending", "p99", "Redis/s")
	s.line = line{at: now(), admitted: make([]int64, s.nodes), sent: s.sent()}
}

func (s *show) columns(cells ...any) {
	fmt.Fprintf(s.out, "%6s %-9s %10s %7s  %-20s %7s %6s %7s\n", cells...)
}

// tell prints how it goes.
func (s *show) tell() {
	t := now()
	seconds := (t - s.line.at).Seconds()
	var sum, pending, hot int64
	var states []hybrid.State
	var times []int64
	for i, n := range s.fleet.nodes {
		total, inWindow, recent := n.glance(int(s.rule.Period()/slot), int((t-s.start)/slot))
		sum, hot = sum+int64(float64(total-s.line.admitted[i])/seconds), hot+inWindow
		s.line.admitted[i] = total
		times = append(times, recent...)
		states = append(states, n.lim.State())
		pending += n.lim.Stats().PendingUnits
	}
	sent := s.sent()
	s.columns(tenths((t-s.start).Seconds())+"s", s.phase(), count(sum),
		fmt.Sprintf("%d %%", hot*100/s.rule.Limit()), stateText(states), count(pending),
		short(percentile(times, 0.99)), count(int64(float64(sent-s.line.sent)/seconds)))
	s.line.at, s.line.sent = t, sent
}

// glance returns the units admitted so far, those of the hottest key in the
// window that ends with a slot, and the times of checks since the last glance.
func (n *node) glance(window, end int) (total, hot int64, recent []int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.part {
		total += p.total
	}
	admitted := n.records[0].admitted
	for i := max(end-window+1, 0); i < len(admitted); i++ {
		hot += admitted[i]
	}
	recent, n.recent = n.recent, nil
	return total, hot, recent
}

// stateWidth is the room that the states of the nodes have.
const stateWidth = 20

// stateText counts the nodes in each state. If there is no room for words it has letters.
func stateText(states []hybrid.State) string {
	counts := map[string]int{}
	for _, s := range states {
		counts[s.Mode.String()]++
	}
	text := func(format string, letters int) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf(format, counts[name], name[:min(letters, len(name))]))
		}
		return strings.Join(parts, " ")
	}
	for _, letters := range []int{len("resyncing"), 4} {
		if t := text("%d %s", letters); len(t) <= stateWidth {
			return t
		}
	}
	return text("%d%s", 1)
}

// count shortens a number above 99,999 to three digits or so.
func count(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= 100*unit.size || n >= 1e6 && n >= unit.size {
			return fmt.Sprintf("%.4g%s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprint(n)
}

// tenths returns seconds with one digit after the point, if they are few.
func tenths(seconds float64) string {
	if seconds < 999.5 {
		return fmt.Sprintf("%.1f", seconds)
	}
	return fmt.Sprintf("%.0f", seconds)
}

// short returns ns with two digits or so.
func short(ns int64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%dns", ns)
	case ns < 999_500:
		return fmt.Sprintf("%.3gµs", float64(ns)/1e3)
	case ns < 999_500_000:
		return fmt.Sprintf("%.3gms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.3gs", float64(ns)/1e9)
}

// columns80 is how wide a line may be.
const columns80 = 80

// wrapped breaks a text into lines between words.
func wrapped(text string) string {
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case at > 0 && at+1+n > columns80:
			b.WriteByte('\n')
			at = 0
		case at > 0:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	b.WriteByte('\n')
	return b.String()
}
