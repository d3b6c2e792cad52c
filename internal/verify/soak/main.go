// Command soak runs several nodes against a real Redis for as long as asked,
// with faults of all kinds drawn from a seed, and looks whether everything stays
// as it should: what is admitted within its bounds, every unit accounted for,
// memory, goroutines and Redis keys flat. It ends with a calm in which all nodes
// must come back and agree with Redis. The exit code is 1 if a promise was
// broken, 2 if the soak could not run.
//
//	go run ./internal/verify/soak -for 20m
//	go run ./internal/verify/soak -for 15s -every 3s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/rig"
)

func main() { os.Exit(start(os.Args[1:], os.Stdout, os.Stderr)) }

func start(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return rig.Fail("soak", err, stderr)
	}
	ctx, stop := rig.Interruptible()
	defer stop()
	ok, err := soak(ctx, c, stdout)
	return conclude(ctx, ok, err, stderr)
}

// conclude turns how it went into an exit code.
func conclude(ctx context.Context, ok bool, err error, stderr io.Writer) int {
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "soak: interrupted")
		return rig.ExitInterrupted
	case err != nil:
		return rig.Fail("soak", err, stderr)
	case !ok:
		return rig.ExitBroken
	}
	return 0
}

// config is what the flags say.
type config struct {
	nodes         int
	length, every time.Duration
	seed          uint64
	verbose       bool
	started       func(*run) // of tests
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&c.length, "for", 2*time.Minute, "how long faults go on; the end takes half a minute more")
	fs.DurationVar(&c.every, "every", time.Minute, "how often to print a line")
	fs.IntVar(&c.nodes, "nodes", 4, "nodes that share the limits")
	fs.Uint64Var(&c.seed, "seed", 0, "what befalls whom is drawn from this `number` (default: a random one)")
	fs.BoolVar(&c.verbose, "v", false, "print every fault")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()>>32 + 1
	}
	return c, c.validate(fs.Args())
}

// validate names every flag that makes no sense.
func (c config) validate(rest []string) error {
	var p rig.Problems
	p.Unless(len(rest) == 0, "unexpected arguments %q", rest)
	p.Unless(c.nodes >= 1 && c.nodes <= 32, "-nodes %d: must be 1 to 32", c.nodes)
	p.Unless(c.length >= time.Second, "-for %v: must be at least 1s", c.length)
	p.Unless(c.every >= 100*time.Millisecond, "-every %v: must be at least 100ms", c.every)
	return p.Err()
}
