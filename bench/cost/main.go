// Command cost measures what a limiter costs a service at the load of a service: checks
// at a steady pace, other work between them, thousands of keys, a real redis-server. It
// adds up the processor time of the whole process and of Redis.
//
//	go run ./bench/cost                       # all rows: a quarter of an hour
//	go run ./bench/cost -run '/5000/2000/'    # those whose name matches
//	go run ./bench/report -parts cost         # all rows, and the page and plot of bench/results
//
// It prints a line for each measurement, in the form of Go's benchmarks, so that benchstat
// reads it too: Cost/<limiter>/<checks a second>/<keys>/<nodes>/<kind>. What the load itself
// costs, with no limiter at all, is in the lines of "nothing", and not taken off the others.
//
// Each row is measured in several passes, the limiters in turn, so that what the machine's
// neighbours do meets all of them.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"
)

func main() {
	o := options{}
	flag.IntVar(&o.passes, "passes", 5, "passes over each row")
	flag.DurationVar(&o.warm, "warm", time.Second, "time before a measurement begins: what reports once a lag does so then")
	flag.DurationVar(&o.measure, "measure", 2*time.Second, "length of a measurement: some lags, of a second")
	pattern := flag.String("run", ".", "lines to measure, by their name: limiter/rate/keys/nodes/kind")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unexpected arguments %q", flag.Args()))
	}
	var err error
	if o.pattern, err = regexp.Compile(*pattern); err != nil {
		fail(err)
	}
	if err := o.run(os.Stdout); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cost:", err)
	os.Exit(1)
}
