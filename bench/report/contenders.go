package main

import (
	"slices"
	"strings"
)

// kind is what a limiter is to a comparison.
type kind int

const (
	ours    kind = iota // this project's
	floor               // the least that a limiter with its keys in a map must do
	single              // one limiter without keys
	keyed               // a rival with keys, in one process
	distant             // asks Redis each time
)

// kindOf goes by names alone, so that a new rival needs no entry here.
func kindOf(limiter string) kind {
	switch {
	case limiter == "local" || limiter == "hybrid" || strings.HasPrefix(limiter, "hybrid-") || strings.HasPrefix(limiter, "local-"):
		return ours
	case limiter == "floor" || strings.HasPrefix(limiter, "floor-"):
		return floor
	case strings.HasSuffix(limiter, "-single"):
		return single
	case strings.Contains(limiter, "redis") || limiter == "remote":
		return distant
	}
	return keyed
}

// mannerOf returns that one of our limiters, or a floor, goes by the coarse clock, or cannot
// learn of keys; empty for the default clock and others.
func mannerOf(limiter string) string {
	for _, name := range []string{"coarse", "array"} {
		if strings.HasSuffix(limiter, "-"+name) {
			return name
		}
	}
	return ""
}

// check is a row of a benchmark of checks, taken apart:
// <bench>/<limiter>/<load …>/<mode>.
type check struct {
	*row
	limiter, load, mode string
}

var modes = []string{"serial", "parallel"}

// checks returns the rows of a benchmark that are checks: those with a limiter
// and a mode.
func (res *results) checks(bench string) (list []check) {
	for _, r := range res.bench(bench) {
		n := len(r.path)
		if n < 3 || !slices.Contains(modes, r.path[n-1]) {
			continue
		}
		if _, timed := r.median("ns/op"); !timed {
			continue
		}
		list = append(list, check{r, r.path[1], strings.Join(r.path[2:n-1], "/"), r.path[n-1]})
	}
	return list
}

func (c check) ns() float64 { return median(c.values["ns/op"]) }

// isUniform and isHot recognise two loads: many keys alike, and one.
func (c check) isUniform() bool { return c.load == "65536/uniform" }
func (c check) isHot() bool     { return c.load == "1/uniform" }

// fastest returns the fastest check of a kind under the same load and in the
// same mode as c. A floor must also be asked in the same manner.
func fastest(list []check, k kind, c check) (best check, found bool) {
	for _, o := range list {
		if kindOf(o.limiter) != k || o.load != c.load || o.mode != c.mode {
			continue
		}
		if k == floor && mannerOf(o.limiter) != mannerOf(c.limiter) {
			continue
		}
		if !found || o.ns() < best.ns() {
			best, found = o, true
		}
	}
	return best, found
}

// same returns another limiter's check under the load and in the mode of c.
func same(list []check, limiter string, c check) (check, bool) {
	for _, o := range list {
		if o.limiter == limiter && o.load == c.load && o.mode == c.mode {
			return o, true
		}
	}
	return check{}, false
}
