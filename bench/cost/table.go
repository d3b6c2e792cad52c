package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

const header = `| load (checks/s, keys, nodes) | limiter | client µs per check | Redis µs | ÷ redis_rate | commands/s | bytes per check | keys per call | check p50 / p99 / p99.9 µs | failed |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |`

// table writes the medians of a row, less what the load itself takes.
func table(out io.Writer, r row, samples map[string][]sample) {
	nothing := samples["nothing"]
	per := func(s sample, d time.Duration) float64 {
		if s.checks == 0 {
			return float64(d.Microseconds()) / s.wall.Seconds() // of an idle one: µs per second
		}
		return float64(d.Nanoseconds()) / 1000 / float64(s.checks)
	}
	client := func(name string) float64 {
		base := median(nothing, func(s sample) float64 { return per(s, s.client) })
		return median(samples[name], func(s sample) float64 { return per(s, s.client) }) - base
	}
	redis := func(name string) float64 {
		base := median(nothing, func(s sample) float64 { return per(s, s.redis) })
		return median(samples[name], func(s sample) float64 { return per(s, s.redis) }) - base
	}
	for _, l := range limiters {
		list := samples[l.name]
		if len(list) == 0 {
			continue
		}
		c, d := client(l.name), redis(l.name)
		if l.name == "nothing" {
			c, d = median(list, func(s sample) float64 { return per(s, s.client) }), 0
		}
		ratio := ""
		if l.shares && len(samples["redis_rate"]) > 0 {
			ratio = fmt.Sprintf("%.3f", (c+d)/(client("redis_rate")+redis("redis_rate")))
		}
		us := func(f func(s sample) time.Duration) float64 {
			return median(list, func(s sample) float64 { return float64(f(s).Nanoseconds()) / 1000 })
		}
		fmt.Fprintf(out, "| %v | %s | %.2f | %.2f | %s | %.0f | %.0f | %.1f | %.1f / %.1f / %.0f | %.0f |\n", r, l.name, c, d, ratio,
			median(list, func(s sample) float64 { return s.commands / s.wall.Seconds() }),
			median(list, func(s sample) float64 { return s.bytes / float64(max(s.checks, 1)) }),
			median(list, func(s sample) float64 { return float64(s.stats.KeysSynced) / float64(max(s.stats.Batches, 1)) }),
			us(func(s sample) time.Duration { return s.p50 }), us(func(s sample) time.Duration { return s.p99 }),
			us(func(s sample) time.Duration { return s.top }),
			median(list, func(s sample) float64 { return float64(s.stats.Failures) }))
	}
}

func median(list []sample, f func(sample) float64) float64 {
	var values []float64
	for _, s := range list {
		values = append(values, f(s))
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
