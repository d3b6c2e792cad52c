// Command small measures how exact a fleet is where limits are a few units: 5 log-ins, 60
// requests. Nodes are limiters in one process, each with its own client, on a real
// redis-server. Each key is offered about twelve times its limit.
//
//	go run ./bench/small                              # all rows: twenty minutes
//	go run ./bench/small -run random/window/5/10      # those whose name matches
//	go run ./bench/report -parts small                # all rows, and the page and plot of bench/results
//
// It prints a line for each limiter of a row, in the form of Go's benchmarks, so that benchstat
// reads it too: Small/<limiter>/<pattern>/<rule>/<limit>/<nodes>. All limiters of a row get the
// same checks at the same times, beside one process that gets all of them ("one"): what that
// admits is right.
//
// Several rows run at the same time, each with redis-servers of its own: their loads are small.
// So the processor time of Redis is that of a server on a machine with other work.
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
	flag.DurationVar(&o.length, "for", 75*time.Second, "length of a row: two and a half windows")
	flag.IntVar(&o.parallel, "parallel", 4, "rows at a time")
	pattern := flag.String("run", ".", "rows to measure, by their name: pattern/rule/limit/nodes")
	flag.Parse()
	if err := o.check(*pattern, flag.Args()); err != nil {
		fail(err)
	}
	if err := o.run(os.Stdout, rows()); err != nil {
		fail(err)
	}
}

func (o *options) check(pattern string, args []string) (err error) {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected arguments %q", args)
	case o.length <= 0:
		return fmt.Errorf("-for is %v, and must be above 0", o.length)
	case o.parallel < 1:
		return fmt.Errorf("-parallel is %d, and must be at least 1", o.parallel)
	}
	o.pattern, err = regexp.Compile(pattern)
	return err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "small:", err)
	os.Exit(1)
}
