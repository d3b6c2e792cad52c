package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// fleet is nodes that share limits through Redis. Each has a client of its own.
type fleet struct {
	nodes   []*hybrid.Limiter
	clients []*redis.Client
	rule    *limit.Rule
	rng     *rand.Rand
	away    atomic.Bool // no call reaches Redis
}

// newFleet opens the nodes of a row.
func newFleet(s scenario, c clock.Clock, maxKeys int, rng *rand.Rand, client func() *redis.Client) (*fleet, error) {
	f := &fleet{rule: s.rule, rng: rng}
	for range s.nodes {
		rdb := client()
		rdb.AddHook(outage{&f.away})
		f.clients = append(f.clients, rdb)
		n, err := hybrid.New(rdb, hybrid.Options{
			MaxKeys: maxKeys, Clock: c, Logger: slog.New(slog.DiscardHandler),
			// A day of heartbeats takes long, and says nothing more than some of them.
			HeartbeatInterval: max(time.Second, s.rule.Period()/10_000),
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

// await returns when the nodes know of each other.
func (f *fleet) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, n := range f.nodes {
		for st := n.State(); st.Mode != hybrid.Synced || st.Nodes != len(f.nodes); st = n.State() {
			if ctx.Err() != nil {
				return fmt.Errorf("a node is %v, and should know of %d", st, len(f.nodes))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// patience is how long a fleet waits for what should be there at once.
const patience = 20 * time.Second

func (f *fleet) ask(key string, n int64) bool {
	return f.nodes[f.rng.IntN(len(f.nodes))].AllowN(key, f.rule, n)
}

// warm is needed by several nodes only.
func (f *fleet) warm(keys []string) error {
	if len(f.nodes) == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, n := range f.nodes {
		if err := n.Flush(ctx); err != nil {
			return err
		}
	}
	for _, n := range f.nodes {
		if err := n.Preload(ctx, keys, f.rule); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) cut(away bool) { f.away.Store(away) }

func (f *fleet) figures() (sum figures) {
	for _, n := range f.nodes {
		s := inside.Of(n).Figures()
		sum.Evictions += int64(s.Evictions)
		sum.Displaced += int64(s.Displaced)
	}
	return sum
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_ = n.Shutdown(ctx) // what it could not report is not what is measured
		cancel()
	}
	for _, c := range f.clients {
		_ = c.Close() // likewise
	}
}

// outage is a hook that keeps calls from Redis.
type outage struct{ away *atomic.Bool }

var errAway = errors.New("attack: Redis is away")

// DialHook dials unless Redis is away.
func (o outage) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if o.away.Load() {
			return nil, errAway
		}
		return next(ctx, network, addr)
	}
}

// ProcessHook makes a call unless Redis is away.
func (o outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o.away.Load() {
			return o.fail(cmd)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook makes calls unless Redis is away.
func (o outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if o.away.Load() {
			return o.fail(cmds...)
		}
		return next(ctx, cmds)
	}
}

// fail answers calls with an error, as the client does.
func (outage) fail(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		cmd.SetErr(errAway)
	}
	return errAway
}
