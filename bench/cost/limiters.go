package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/hybridlimit/hybridlimit/bench/internal/rig"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

// subject is a limiter that runs: one ask per node.
type subject struct {
	ask   []func(key string) bool
	stats func() hybrid.Stats // of all nodes; nil: it has none
	await func() error        // returns when the nodes know each other; nil: they need not
	close func()
}

// limiter is what is measured.
type limiter struct {
	name    string
	window  bool // by a sliding window, not by a leaky bucket
	shares  bool // the nodes share limits, through Redis
	settles bool // what it costs depends on what was asked before
	open    func(addr string, r row, rule *limit.Rule) (*subject, error)
}

var limiters = []limiter{
	{"nothing", false, false, false, openNothing},
	{"hybrid", false, true, true, openHybrid},
	{"hybrid-window", true, true, true, openHybrid},
	{"redis_rate", false, true, true, openRedisRate},
	{"memorystore", false, false, true, openMemorystore},
}

// mostOfRedisRate is how many checks a second redis_rate is asked for: with an exchange for
// each, one caller hardly gets more.
const mostOfRedisRate = 5000

// does reports whether a row says something about a limiter.
func (l limiter) does(r row) bool {
	switch {
	case l.name == "nothing":
		return r.kind != flatOut
	case l.name == "redis_rate":
		return 0 < r.rate && r.rate <= mostOfRedisRate
	case r.kind == idle:
		return l.name == "hybrid" // whatever its rules are
	case r.nodes > 1:
		return l.shares
	}
	return true
}

func openNothing(_ string, r row, _ *limit.Rule) (*subject, error) {
	return each(r, func() func(string) bool { return func(string) bool { return true } }, func() {}), nil
}

// each is a subject of equal nodes.
func each(r row, node func() func(string) bool, end func()) *subject {
	s := &subject{close: end}
	for range r.nodes {
		s.ask = append(s.ask, node())
	}
	return s
}

func openHybrid(addr string, r row, rule *limit.Rule) (*subject, error) {
	var nodes []*hybrid.Limiter
	var clients []*redis.Client
	s := &subject{}
	s.close = func() {
		for i, l := range nodes {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = l.Close(ctx) // what it could not report is not what is measured
			cancel()
			clients[i].Close()
		}
	}
	for range r.nodes {
		rdb := redis.NewClient(hybrid.RedisOptions(addr))
		l, err := hybrid.New(rdb, hybrid.Options{MaxKeys: 2 * max(r.keys, 1<<15)})
		if err != nil {
			return nil, err
		}
		nodes, clients = append(nodes, l), append(clients, rdb)
		s.ask = append(s.ask, func(key string) bool { return l.Allow(key, rule) })
	}
	s.stats = func() (sum hybrid.Stats) {
		for _, l := range nodes {
			sum = add(sum, l.Stats(), 1)
		}
		return sum
	}
	s.await = func() error {
		for _, l := range nodes {
			if err := awaitFleet(l, r.nodes); err != nil {
				return err
			}
		}
		return nil
	}
	return s, nil
}

// awaitFleet waits until a node has heard of all the others.
func awaitFleet(l *hybrid.Limiter, nodes int) error {
	for end := rig.Now() + 10*time.Second; ; time.Sleep(10 * time.Millisecond) {
		st := l.State()
		if st.Mode == hybrid.Synced && st.Nodes == nodes {
			return nil
		}
		if rig.Now() > end {
			return fmt.Errorf("a node says %v, and should know of %d", st, nodes)
		}
	}
}

func openRedisRate(addr string, r row, rule *limit.Rule) (*subject, error) {
	at := redis_rate.Limit{Rate: int(rule.Units()), Burst: int(rule.Limit()), Period: rule.Period()}
	var clients []*redis.Client
	node := func() func(string) bool {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		clients = append(clients, rdb)
		l, ctx := redis_rate.NewLimiter(rdb), context.Background()
		return func(key string) bool {
			res, err := l.Allow(ctx, key, at)
			return err == nil && res.Allowed == 1
		}
	}
	return each(r, node, func() {
		for _, c := range clients {
			c.Close()
		}
	}), nil
}

func openMemorystore(_ string, r row, rule *limit.Rule) (*subject, error) {
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
	return each(r, node, func() { _ = store.Close(ctx) }), nil
}
