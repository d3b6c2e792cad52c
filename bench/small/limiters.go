package main

import (
	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// limiter is what is measured.
type limiter struct {
	name  string
	redis bool // it has one
	waits bool // a check waits for Redis
	open  func(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error)
}

// one is the limiter that the others are compared with: a single process.
const one = "one"

var limiters = []limiter{
	{one, false, false, func(_ string, _ row, rule *limit.Rule) (*fleet.Fleet, error) { return fleet.Local(1, rule) }},
	{"hybrid", true, false, func(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
		return fleet.Hybrid(addr, r.nodes, rule, hybrid.Options{})
	}},
	// As httprate and others without a store: each node counts for itself.
	{"alone", false, false, func(_ string, r row, rule *limit.Rule) (*fleet.Fleet, error) { return fleet.Local(r.nodes, rule) }},
	{"remote", true, true, func(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
		return fleet.Remote(addr, r.nodes, rule)
	}},
	{"redis_rate", true, true, func(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
		return fleet.RedisRate(addr, r.nodes, rule), nil
	}},
}

// does reports whether a row says something about a limiter. Where each check waits for Redis
// it makes no difference which node is asked, so that ten nodes say all.
func (l limiter) does(r row) bool {
	switch {
	case l.waits && (r.nodes != 10 || r.pattern == sticky), l.name == "redis_rate" && r.window:
		return false
	case l.name == "alone":
		return r.nodes > 1
	}
	return true
}
