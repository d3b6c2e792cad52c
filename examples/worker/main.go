// Command worker calls a service that takes 50 calls a second, and waits for its turn instead
// of being refused: go run ./examples/worker
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/examples/internal/demo"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	upstream = limit.Must(limit.TokenBucket("upstream", 50, time.Second, 5)) // 5 at once, then one every 20 ms
	orders   = limit.Must(limit.TokenBucket("orders", 6, time.Hour, 1))      // one every 10 min
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	server, err := demo.StartRedis(out)
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
	defer rdb.Close()
	lim := limit.Must(hybrid.New(rdb, hybrid.Options{})) // workers in other processes share the limit
	defer lim.Close()

	var calls atomic.Int64
	url, stop, err := demo.Serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	if err != nil {
		return err
	}
	defer stop()
	const jobs = 20
	err = work(ctx, lim, url, jobs)
	fmt.Fprintf(out, "%d jobs, %d calls of the service\n", jobs, calls.Load())
	if err != nil {
		return err // on Ctrl-C what is left is not done: a real worker gives it back to its queue
	}
	return others(ctx, lim, out)
}

// work does jobs in four goroutines.
func work(ctx context.Context, lim *hybrid.Limiter, url string, jobs int) error {
	var client demo.Client
	defer client.Close()
	queue := make(chan int, jobs)
	for job := range jobs {
		queue <- job
	}
	close(queue)
	errs := make([]error, 4)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for range queue {
				if errs[i] = lim.Wait(ctx, "billing", upstream); errs[i] != nil {
					return
				}
				if _, errs[i] = client.Get(ctx, url, "worker", "127.0.0.1"); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// others is for those who cannot wait for as long as it takes.
func others(ctx context.Context, lim *hybrid.Limiter, out io.Writer) error {
	// A deadline that cannot be met is an error at once: nothing is consumed.
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lim.Allow("alice", orders)
	var late *limit.WaitError
	if err := lim.Wait(soon, "alice", orders); !errors.As(err, &late) {
		return fmt.Errorf("waiting for minutes: %w", err)
	}
	fmt.Fprintln(out, "not within a minute; it would take up to", late.Need.Round(10*time.Minute))

	// A caller who cannot wait here is told when the turn comes.
	for range 3 {
		r := lim.Reserve("carol", orders)
		fmt.Fprintln(out, "reserved, to be used in", r.Delay().Round(10*time.Minute))
	}
	return nil
}
