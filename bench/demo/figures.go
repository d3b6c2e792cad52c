package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// tick is how far the figures of a run are apart, in slots.
const tick = int(250 * time.Millisecond / slot)

// timing is how long a check took, and the slot in which it was made.
type timing struct {
	at int
	ns int64
}

// writeFigures writes what a run has recorded to a file, in the form of Go's benchmarks.
func (s *show) writeFigures(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = s.figures(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// figures writes a line for each tick: what the hottest key was offered and admitted per
// second, by all nodes together, in the window of the rule that ends there; what all keys were
// admitted since the tick before; how many nodes were degraded then; whether Redis was away;
// and the 99th percentile of the checks in between. The first window is left out: it began
// before there was any load. The load has ended.
func (s *show) figures(out io.Writer) error {
	window := int(s.rule.Period() / slot)
	for end := max(window, tick); end <= int((s.end-s.start)/slot); end += tick {
		var offered, hot, all, degraded int64
		var times []int64
		at := s.start + time.Duration(end)*slot
		for _, n := range s.fleet.nodes {
			offered += sum(n.records[0].offered, end-window, end)
			hot += sum(n.records[0].admitted, end-window, end)
			all += sum(n.all.admitted, end-tick, end)
			if n.modeAt(at) == hybrid.Degraded {
				degraded++
			}
			for _, t := range n.timed {
				if t.at >= end-tick && t.at < end {
					times = append(times, t.ns)
				}
			}
		}
		away := 0
		if (span{at, at + 1}).touches(s.down) {
			away = 1
		}
		perSecond := func(units int64, slots int) float64 { return float64(units) / (time.Duration(slots) * slot).Seconds() }
		seconds := (time.Duration(end) * slot).Seconds()
		if _, err := fmt.Fprintf(out, "BenchmarkOutage/%.2f 1 %.2f s %.1f limit/s %.1f offered/s %.1f hot/s %.0f admitted/s %d degraded %d away %.2f p99-us\n",
			seconds, seconds, perSecond(s.rule.Limit(), window), perSecond(offered, window), perSecond(hot, window), perSecond(all, tick),
			degraded, away, float64(percentile(times, 0.99))/1e3); err != nil {
			return err
		}
	}
	return nil
}

// sum adds up the slots from one to before another, of those that there are.
func sum(slots []int64, from, to int) (units int64) {
	for i := from; i < min(to, len(slots)); i++ {
		units += slots[i]
	}
	return units
}

// modeAt returns the mode of a node's limiter at a time of the run.
func (n *node) modeAt(at time.Duration) hybrid.Mode {
	n.mu.Lock() // history may still grow
	defer n.mu.Unlock()
	mode := hybrid.Synced // the load begins when all nodes are
	for _, c := range n.history {
		if c.since <= at {
			mode = c.mode
		}
	}
	return mode
}
