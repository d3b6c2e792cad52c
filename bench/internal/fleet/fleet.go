// Package fleet opens limiters as the nodes of a fleet: all in one process, each with a client
// of its own.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// Fleet is limiters that run.
type Fleet struct {
	Ask      []func(key string) bool // by node
	Limiters []*hybrid.Limiter       // the nodes, if they are hybrid limiters

	failed atomic.Uint64 // checks that Redis did not answer
	ends   []func()
}

// Of returns a fleet of equal nodes. end may be nil.
func Of(nodes int, node func() func(key string) bool, end func()) *Fleet {
	f := &Fleet{}
	for range nodes {
		f.Ask = append(f.Ask, node())
	}
	if end != nil {
		f.ends = append(f.ends, end)
	}
	return f
}

// Local opens nodes that share nothing.
func Local(nodes int, rule *limit.Rule) (*Fleet, error) {
	f := &Fleet{}
	for range nodes {
		if err := f.add(nil, rule, hybrid.Options{}); err != nil { // as package local, but it can be closed
			return nil, err
		}
	}
	return f, nil
}

// Hybrid opens nodes that share limits later.
func Hybrid(addr string, nodes int, rule *limit.Rule, o hybrid.Options) (*Fleet, error) {
	f := &Fleet{}
	for range nodes {
		if err := f.add(f.client(hybrid.RedisOptions(addr)), rule, o); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// HybridExact opens hybrid limiters that let Redis decide unless they know that it would refuse.
func HybridExact(addr string, nodes int, rule *limit.Rule, o hybrid.Options) (*Fleet, error) {
	f, err := Hybrid(addr, nodes, rule, o)
	if err != nil {
		return nil, err
	}
	for i, l := range f.Limiters {
		f.Ask[i] = func(key string) bool {
			res, err := l.TakeExact(context.Background(), limit.Check{Key: key, Rule: rule})
			return f.answered(err) && res.Allowed
		}
	}
	return f, nil
}

// add adds a hybrid limiter, or ends all that there are.
func (f *Fleet) add(rdb redis.UniversalClient, rule *limit.Rule, o hybrid.Options) error {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l, err := hybrid.New(rdb, o)
	if err != nil {
		f.Close()
		return err
	}
	f.Limiters = append(f.Limiters, l)
	f.Ask = append(f.Ask, func(key string) bool { return l.Allow(key, rule) })
	return nil
}

// Remote opens nodes that ask Redis for each check.
func Remote(addr string, nodes int, rule *limit.Rule) (*Fleet, error) {
	f := &Fleet{}
	for range nodes {
		l, err := remote.New(f.client(hybrid.RedisOptions(addr)), remote.Options{})
		if err != nil {
			f.Close()
			return nil, err
		}
		f.Ask = append(f.Ask, func(key string) bool {
			res, err := l.Take(context.Background(), key, rule, 1)
			return f.answered(err) && res.Allowed
		})
	}
	return f, nil
}

// RedisRate opens nodes of the rival that asks Redis for each check.
func RedisRate(addr string, nodes int, rule *limit.Rule) *Fleet {
	f := &Fleet{}
	at := redis_rate.Limit{Rate: int(arith.Of(rule).Units), Burst: int(rule.Limit()), Period: rule.Period()}
	for range nodes {
		l := redis_rate.NewLimiter(f.client(&redis.Options{Addr: addr}))
		f.Ask = append(f.Ask, func(key string) bool {
			res, err := l.Allow(context.Background(), key, at)
			return f.answered(err) && res.Allowed == 1
		})
	}
	return f
}

func (f *Fleet) client(o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	f.ends = append(f.ends, func() { rdb.Close() })
	return rdb
}

func (f *Fleet) answered(err error) bool {
	if err != nil {
		f.failed.Add(1)
	}
	return err == nil
}

// Await returns when the hybrid limiters have heard of each other, if they share anything.
func (f *Fleet) Await() error {
	for _, l := range f.Limiters {
		for end := rig.Now() + 10*time.Second; ; time.Sleep(10 * time.Millisecond) {
			st := l.State()
			if st.Mode == hybrid.LocalOnly || st.Mode == hybrid.Synced && st.Nodes == len(f.Limiters) {
				break
			}
			if rig.Now() > end {
				return fmt.Errorf("a node says %v, and should know of %d", st, len(f.Limiters))
			}
		}
	}
	return nil
}

// Stats adds up what the hybrid limiters say of their exchanges; only Failures counts for the
// others.
func (f *Fleet) Stats() (sum inside.Figures) {
	sum.Failures = f.failed.Load()
	for _, l := range f.Limiters {
		sum = Add(sum, inside.Of(l).Figures(), 1)
	}
	return sum
}

// Add returns what a says of exchanges, and sign times what b says.
func Add(a, b inside.Figures, sign int) (sum inside.Figures) {
	plus := func(a, b uint64) uint64 { return a + uint64(sign)*b }
	sum.Batches, sum.KeysSynced = plus(a.Batches, b.Batches), plus(a.KeysSynced, b.KeysSynced)
	sum.Heartbeats, sum.Failures = plus(a.Heartbeats, b.Heartbeats), plus(a.Failures, b.Failures)
	return sum
}

// Close ends all nodes, each limiter before its client.
func (f *Fleet) Close() {
	for _, l := range f.Limiters {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = l.Shutdown(ctx) // what it could not report is not what is measured
		cancel()
	}
	for _, end := range f.ends {
		end()
	}
}
