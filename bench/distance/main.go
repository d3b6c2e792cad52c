// Command distance measures limiters whose Redis is far away: two nodes on a wire to a real
// redis-server on which every byte arrives half of a round trip after it was sent. The options are
// the defaults. Each key is asked for ten times a second on each node, and its limit is 20 per 10 s.
//
//	go run ./bench/distance                  # the table of docs/redis.md: two minutes
//	go run ./bench/distance -trip 40ms,80ms  # some distances
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	o := options{}
	trips := flag.String("trip", "200us,1ms,5ms,20ms,40ms,80ms,150ms", "round trips")
	flag.DurationVar(&o.length, "for", 25*time.Second, "length of a row: two and a half windows")
	flag.IntVar(&o.keys, "keys", 500, "keys")
	flag.IntVar(&o.parallel, "parallel", 2, "rows at a time")
	flag.Parse()
	if err := o.check(*trips, flag.Args()); err != nil {
		fail(err)
	}
	if err := o.run(os.Stdout); err != nil {
		fail(err)
	}
}

func (o *options) check(trips string, args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected arguments %q", args)
	case o.length <= 0 || o.keys < 1 || o.parallel < 1:
		return fmt.Errorf("-for is %v, -keys is %d, -parallel is %d: all must be above 0", o.length, o.keys, o.parallel)
	}
	for text := range strings.SplitSeq(trips, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("-trip: %q is no round trip", text)
		}
		o.trips = append(o.trips, d)
	}
	return nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "distance:", err)
	os.Exit(1)
}
