package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// realtime plays a row on a redis-server of its own.
func (o options) realtime(ctx context.Context, s scenario) (*measurement, error) {
	server, err := redistest.Launch(redistest.Options{})
	if err != nil {
		return nil, err
	}
	defer server.Close()
	client := func() *redis.Client { return redis.NewClient(hybrid.RedisOptions(server.Addr())) }
	keys, scale := o.room(s)
	c := clock.System{}
	f, err := newFleet(s, c, keys, o.rand(s, "nodes"), client)
	if err != nil {
		return nil, err
	}
	if err := f.await(); err != nil {
		f.close()
		return nil, err
	}
	from := c.Now()
	return o.play(ctx, s, stage{c, func(at time.Duration) { time.Sleep(from + at - c.Now()) }, f}, scale)
}

// hungry is how many goroutines take the processor while a row is starved.
const hungry = 2

// starve leaves the program one processor, and lets others compete for it, until end is called.
func starve() (end func()) {
	before := runtime.GOMAXPROCS(1)
	var stop atomic.Bool
	for range hungry {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	return func() {
		stop.Store(true)
		runtime.GOMAXPROCS(before)
	}
}
