// Command waiting spreads jobs out instead of refusing them: an upstream
// service takes 50 calls a second, one at a time.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var upstream = limit.Must(limit.Funnel("upstream", 1, 50, time.Second)) // one every 20 ms

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	lim, err := hybrid.New(nil, hybrid.Options{}) // this process alone; a Redis client shares the limits
	if err != nil {
		return err
	}
	defer lim.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for job := range 3 {
		if err := lim.Wait(ctx, "billing", upstream, 1); err != nil {
			return err
		}
		fmt.Fprintln(out, "job", job, "calls the upstream")
	}

	// A deadline that cannot be met is an error at once: nothing is consumed.
	hurried, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	lim.AllowN("shipping", upstream, 1)
	var late *limit.WaitError
	if err := lim.Wait(hurried, "shipping", upstream, 1); errors.As(err, &late) {
		fmt.Fprintln(out, "not within the deadline; it would take up to", late.Need.Round(20*time.Millisecond))
	}

	// A caller who cannot wait here is told when the turn comes.
	orders := limit.Must(limit.Funnel("orders", 1, 6, time.Hour))
	for range 3 {
		r := lim.Reserve("carol", orders, 1)
		fmt.Fprintln(out, "reserved, to be used in", r.Delay().Round(time.Minute))
	}
	return nil
}
