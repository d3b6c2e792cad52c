package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// line is what the last line per second has shown, so that the next can show
// what is new.
type line struct {
	at       time.Duration
	admitted []int64
	sent     int64
}

// fewNodes is up to how many nodes each is shown by itself.
const fewNodes = 4

func (s *show) header() {
	fmt.Fprintf(s.out, "%d nodes share %s; each has %d keys and %.0f checks/s, the hottest key is offered %g times its limit.\n",
		s.nodes, s.world.name, s.keys, s.traffic.rate(), s.overload)
	fmt.Fprintf(s.out, "Rule: %v. Times of checks are those of one in %d, with the reading of the clock in them.\n\n", s.rule, sampled)
	s.columns("time", "phase", "admitted/s", "hottest key", "state", "nodes", "pending", "p50/p99 ns", "redis cmd/s")
	s.line = line{at: now(), admitted: make([]int64, s.nodes), sent: s.sent()}
}

func (s *show) columns(cells ...any) {
	fmt.Fprintf(s.out, "%6s  %-9s  %-16s  %-15s  %-28s  %5v  %7v  %12s  %11v\n", cells...)
}

// tell prints how it goes.
func (s *show) tell() {
	t := now()
	seconds := (t - s.line.at).Seconds()
	var rates []string
	var sum, pending, hot int64
	var states []hybrid.State
	var times []int64
	for i, n := range s.fleet.nodes {
		total, inWindow, recent := n.glance(int(s.rule.Period()/slot), int((t-s.start)/slot))
		rate := int64(float64(total-s.line.admitted[i]) / seconds)
		s.line.admitted[i] = total
		sum, hot = sum+rate, hot+inWindow
		rates = append(rates, fmt.Sprint(rate))
		times = append(times, recent...)
		states = append(states, n.lim.State())
		pending += n.lim.Stats().PendingUnits
	}
	if len(rates) > fewNodes {
		rates = []string{fmt.Sprint(sum), "by all"}
	}
	sent := s.sent()
	s.columns(fmt.Sprintf("%.1fs", (t-s.start).Seconds()), s.phase(), strings.Join(rates, " "),
		fmt.Sprintf("%d/%d", hot, s.rule.Limit()), stateText(states), liveText(states), pending,
		fmt.Sprintf("%d/%d", percentile(times, 0.5), percentile(times, 0.99)), int64(float64(sent-s.line.sent)/seconds))
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

// stateText names each node's state, or counts them when there are many.
func stateText(states []hybrid.State) string {
	var names []string
	counts := map[string]int{}
	for _, s := range states {
		name := s.Mode.String()
		names = append(names, name)
		counts[name]++
	}
	if len(states) <= fewNodes && len(counts) > 1 {
		return strings.Join(names, " ")
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for i, name := range names {
		names[i] = fmt.Sprint(counts[name], " ", name)
	}
	return strings.Join(names, ", ")
}

// liveText says how many live nodes the nodes know of.
func liveText(states []hybrid.State) string {
	least, most := states[0].Nodes, states[0].Nodes
	for _, s := range states {
		least, most = min(least, s.Nodes), max(most, s.Nodes)
	}
	if least == most {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d-%d", least, most)
}
