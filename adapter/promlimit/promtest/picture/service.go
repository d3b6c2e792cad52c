package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/promlimit"
	"github.com/hybridlimit/hybridlimit/adapter/promlimit/promtest"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The course of a run, in scrapes.
const (
	scrapes = 300
	frozen  = 120 // from this one on Redis does not answer
	thawed  = 180 // and from this one on it does
)

// rules are the limits of a service with 200 users. Some are more than they need.
var rules = []struct {
	rule *limit.Rule
	rate int // checks a second, on each node
	keys int
}{
	{limit.Must(limit.SlidingWindow("api per user", 60, 10*time.Second)), 1000, 200},
	{limit.Must(limit.TokenBucket("search", 100, time.Second, 20)), 80, 1},
	{limit.Must(limit.TokenBucket("login per address", 5, time.Minute, 5)), 20, 100},
	{limit.Must(limit.SlidingWindow("uploads, planned", 30, 10*time.Second)).DryRun(), 50, 20},
}

// serve runs two limiters, as if in two processes, under traffic, freezes their Redis for a
// while, and scrapes both. It returns when that began and ended.
func serve(ctx context.Context, prom *promtest.Prometheus, length time.Duration, says io.Writer) (begun, ended time.Time, err error) {
	server, err := redistest.Launch(redistest.Options{})
	if err != nil {
		return begun, ended, err
	}
	defer server.Close()
	ctx, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	urls, limiters := map[string]string{}, []*hybrid.Limiter{}
	for i := range 2 {
		rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
		defer rdb.Close()
		lim, err := hybrid.New(rdb, hybrid.Options{ExpectedNodes: 2, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return begun, ended, err
		}
		defer lim.Close()
		limiters = append(limiters, lim)
		reg := prometheus.NewRegistry()
		if err := promlimit.Register(reg, "main", lim); err != nil {
			return begun, ended, err
		}
		metrics := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
		defer metrics.Close()
		urls[fmt.Sprintf("node-%d:8080", i)] = metrics.URL
		for _, r := range rules {
			busy.Go(func() { ask(ctx, lim, r.rule, r.rate, r.keys) })
		}
	}
	defer server.Thaw() // it does not end while it is frozen
	begun = time.Now()
	tick := time.NewTicker(length / scrapes)
	defer tick.Stop()
	for i := range scrapes {
		select {
		case <-ctx.Done():
			return begun, ended, ctx.Err()
		case <-tick.C:
		}
		switch i {
		case frozen:
			fmt.Fprintln(says, "Redis is frozen")
			err = server.Freeze()
		case thawed:
			for _, lim := range limiters {
				for lim.State().Mode != hybrid.Degraded && ctx.Err() == nil { // on a busy machine
					time.Sleep(10 * time.Millisecond)
				}
			}
			fmt.Fprintln(says, "Redis goes on")
			err = server.Thaw()
		}
		for instance, url := range urls {
			if err == nil {
				err = prom.Scrape(url, instance, time.Now())
			}
		}
		if err != nil {
			return begun, ended, err
		}
	}
	return begun, time.Now(), nil
}

// ask checks keys at random until ctx ends, so many a second.
func ask(ctx context.Context, lim *hybrid.Limiter, rule *limit.Rule, rate, keys int) {
	const each = 10 * time.Millisecond
	tick := time.NewTicker(each)
	defer tick.Stop()
	for due := 0.0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due += float64(rate) * each.Seconds(); due >= 1; due-- {
			// Low numbers are the busier ones.
			x := rand.Float64()
			lim.Allow(fmt.Sprint("key ", int(x*x*float64(keys))), rule)
		}
	}
}
