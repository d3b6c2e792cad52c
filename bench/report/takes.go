package main

import (
	"fmt"
	"strings"
)

// takes is what Redis is asked for in a second by a load, and what it takes.
type takes struct {
	cost
	keys, calls float64 // reported; script calls, heartbeats included
	us          float64 // of Redis' processor
}

// takes returns the loads under which one of our limiters reports.
func (res *results) takes(limiter string) (list []takes) {
	for _, c := range res.costs("") {
		took, ok := res.spent(c.limiter, c.load, perCheck[1])
		checks, have := c.median("checks/s")
		keys, _ := c.median("keys/s")
		if c.limiter != limiter || !ok || !have || keys == 0 {
			continue
		}
		calls, _ := c.median("calls/s")
		beats, _ := c.median("beats/s")
		list = append(list, takes{c, keys, calls + beats, took.v * checks})
	}
	return list
}

// fit returns how long, in µs, a key and a script call beside its keys take, so that the
// square of the relative error is least over all loads; how far it is off at the most, as
// a part; and whether the loads are different enough to tell.
func fit(list []takes) (key, call, off float64, ok bool) {
	var kk, kc, cc, k, c float64
	for _, t := range list {
		x, y := t.keys/t.us, t.calls/t.us
		kk, kc, cc, k, c = kk+x*x, kc+x*y, cc+y*y, k+x, c+y
	}
	det := kk*cc - kc*kc
	if len(list) < 3 || det < 0.01*kk*cc {
		return 0, 0, 0, false
	}
	key, call = (k*cc-c*kc)/det, (c*kk-k*kc)/det
	for _, t := range list {
		part := (key*t.keys + call*t.calls - t.us) / t.us
		off = max(off, part, -part)
	}
	return key, call, off, key > 0 && call > 0
}

// writeTakes says what reports cost Redis, and how many it could take.
func writeTakes(b *strings.Builder, res *results) {
	t := newTable("load", "limiter", "keys reported/s", "by the formula", "Redis, µs per key", "keys/s that half a core could take")
	var words strings.Builder
	for _, limiter := range []string{"hybrid", "hybrid-window"} {
		list := res.takes(limiter)
		if key, call, off, ok := fit(list); ok {
			fmt.Fprintf(&words, "Of `%s` a key takes Redis %s µs, and a script call %s µs beside its keys: that comes within %.0f %% of each load. ", limiter, figure(key), figure(call), 100*off)
		}
		for _, l := range list {
			t.add(l.load, "`"+limiter+"`", figure(l.keys), cell(l.median("formula-keys/s")), figure(l.us/l.keys), figure(0.5e6*l.keys/l.us))
		}
	}
	if len(t.rows) == 0 {
		return
	}
	b.WriteString("## What one Redis takes\n\nHow many keys a second nodes report follows from how often keys are asked, not from the number of checks: the formula of [the operations guide](../../docs/operations.md#capacity), for a load that has lasted. " +
		"Limits of 10 a minute have not been reached here by most keys when the measurement begins, so that there is more to report; and without a pause reports wait for each other, so that there is less. Heartbeats are in these figures.\n\n")
	if words.Len() > 0 {
		b.WriteString(words.String() + "Much of a call is to wake Redis up: one that is busy takes less, as `redis_rate` shows.\n\n")
	}
	t.write(b)
}
