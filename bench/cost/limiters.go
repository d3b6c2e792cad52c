package main

import (
	"context"

	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/hybridlimit/hybridlimit/bench/internal/fleet"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// limiter is what is measured.
type limiter struct {
	name    string
	window  bool // by a sliding window, not by a leaky bucket
	shares  bool // the nodes share limits, through Redis
	settles bool // what it costs depends on what was asked before
	open    func(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error)
}

var limiters = []limiter{
	{"nothing", false, false, false, openNothing},
	{"hybrid", false, true, true, openHybrid},
	{"hybrid-window", true, true, true, openHybrid},
	{"hybrid-exact", false, true, true, openHybridExact},
	{"remote", false, true, true, openRemote},
	{"redis_rate", false, true, true, openRedisRate},
	{"memorystore", false, false, true, openMemorystore},
}

// mostOfRedisRate is how many checks a second limiters that wait for Redis are asked for: with an exchange for
// each, one caller hardly gets more from them.
const mostOfRedisRate = 5000

// does reports whether a row says something about a limiter.
func (l limiter) does(r row) bool {
	switch {
	case l.name == "nothing":
		return r.kind != flatOut
	case l.name == "redis_rate":
		return 0 < r.rate && r.rate <= mostOfRedisRate
	case l.name == "hybrid-exact", l.name == "remote":
		return 0 < r.rate && r.rate <= mostOfRedisRate && r.nodes > 1 && r.kind != scarce
	case r.kind == spent:
		return l.name == "hybrid"
	case r.kind == idle:
		return l.name == "hybrid" // whatever its rules are
	case r.nodes > 1:
		return l.shares
	}
	return true
}

func openNothing(_ string, r row, _ *limit.Rule) (*fleet.Fleet, error) {
	return fleet.Of(r.nodes, func() func(string) bool { return func(string) bool { return true } }, nil), nil
}

func openHybrid(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
	return fleet.Hybrid(addr, r.nodes, rule, hybrid.Options{MaxKeys: 2 * max(r.keys, 1<<15)})
}

func openHybridExact(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
	return fleet.HybridExact(addr, r.nodes, rule, hybrid.Options{MaxKeys: 2 * max(r.keys, 1<<15)})
}

func openRemote(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
	return fleet.Remote(addr, r.nodes, rule)
}

func openRedisRate(addr string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
	return fleet.RedisRate(addr, r.nodes, rule), nil
}

func openMemorystore(_ string, r row, rule *limit.Rule) (*fleet.Fleet, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(rule.Limit()), Interval: rule.Period()})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	node := func() func(string) bool {
		return func(key string) bool {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok && err == nil
		}
	}
	return fleet.Of(r.nodes, node, func() { _ = store.Close(ctx) }), nil
}
