// Command cost measures what a limiter costs a service at the load of a service: checks
// at a steady pace, other work between them, thousands of keys, a real redis-server. It
// adds up the processor time of the whole process and of Redis, and takes off what the
// same load costs with no limiter at all.
//
//	go run ./bench/cost                  # all rows, some ten minutes
//	go run ./bench/cost -run '^5000/'    # the rows whose name matches
//
// Each row is measured in several passes, the limiters in turn, so that what the
// machine's neighbours do meets all of them. Tables show medians.
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
	flag.DurationVar(&o.warm, "warm", 2500*time.Millisecond, "time before a measurement begins: all keys in use are known then")
	flag.DurationVar(&o.measure, "measure", 3*time.Second, "length of a measurement")
	pattern := flag.String("run", ".", "rows to measure, by their name: rate/keys/nodes/kind")
	only := flag.String("limiters", ".", "limiters to measure")
	raw := flag.String("raw", "", "`file` to write each measurement to, one per line")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unexpected arguments %q", flag.Args()))
	}
	var err error
	if o.rows, err = regexp.Compile(*pattern); err != nil {
		fail(err)
	}
	if o.limiters, err = regexp.Compile(*only); err != nil {
		fail(err)
	}
	if *raw != "" {
		if o.raw, err = os.Create(*raw); err != nil {
			fail(err)
		}
		defer o.raw.Close()
	}
	if err := o.run(os.Stdout); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cost:", err)
	os.Exit(1)
}
