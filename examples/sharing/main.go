// Command sharing lets two limiters, as of two processes, share limits through
// a Redis, and takes it away from them for a moment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var rule = limit.Must(limit.Funnel("sharing", 10, 1, time.Hour)) // 10 at once, then one an hour

func main() {
	addr := flag.String("redis", "", "`host:port` of a Redis; if empty, one inside this process, which can be stopped")
	flag.Parse()
	redis.SetLogger(quiet{})
	if err := run(*addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// quiet keeps go-redis from writing a line for each connection that is refused.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func run(addr string, out io.Writer) error {
	var embedded *miniredis.Miniredis
	if addr == "" {
		var err error
		if embedded, err = miniredis.Run(); err != nil {
			return err
		}
		defer embedded.Close()
		addr = embedded.Addr()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var nodes []*hybrid.Limiter
	for range 2 {
		rdb := redis.NewClient(hybrid.RedisOptions(addr))
		defer rdb.Close()
		lim, err := hybrid.New(rdb, hybrid.Options{HeartbeatInterval: 50 * time.Millisecond})
		if err != nil {
			return err
		}
		defer lim.Close(context.Background())
		nodes = append(nodes, lim)
	}
	all := func(want func(hybrid.State) bool) error { return await(ctx, nodes, want) }

	if err := all(func(s hybrid.State) bool { return s.Mode == hybrid.Synced && s.Nodes == 2 }); err != nil {
		return err
	}
	key := fmt.Sprintf("customer %d", os.Getpid())
	fmt.Fprintln(out, "the first node admits", admitted(nodes[0], key, 6))
	for _, n := range nodes { // at once, rather than within a second
		if err := errors.Join(n.Flush(ctx), n.Preload(ctx, []string{key}, rule)); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "the second node admits", admitted(nodes[1], key, 100))
	if embedded == nil {
		return nil
	}

	embedded.Close()
	if err := all(func(s hybrid.State) bool { return s.Mode == hybrid.Degraded }); err != nil {
		return err
	}
	fmt.Fprintln(out, "Redis is away; of another customer each admits its share:",
		admitted(nodes[0], "other", 100), "and", admitted(nodes[1], "other", 100))

	if err := embedded.Restart(); err != nil {
		return err
	}
	if err := all(func(s hybrid.State) bool { return s.Mode == hybrid.Synced }); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := n.Flush(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "Redis is back, and has been told; left:", nodes[0].Peek("other", rule).Remaining)
	return nil
}

// admitted asks n times for a unit of key and returns how often that was allowed.
func admitted(lim *hybrid.Limiter, key string, n int) (sum int) {
	for range n {
		if lim.Allow(key, rule) {
			sum++
		}
	}
	return sum
}

// await waits until all nodes are in a state that is wanted.
func await(ctx context.Context, nodes []*hybrid.Limiter, want func(hybrid.State) bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, n := range nodes {
		for !want(n.State()) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("still %v: %w", n.State(), ctx.Err())
			case <-tick.C:
			}
		}
	}
	return nil
}
