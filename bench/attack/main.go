package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/hybridlimit/hybridlimit/internal/rig"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the command. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	list, o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return rig.Fail("attack", err, stderr)
	}
	ctx, stop := rig.Interruptible()
	defer stop()
	code := 0
	header(stdout)
	for _, s := range list {
		m, err := o.measure(ctx, s)
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(stderr, "attack: interrupted")
			return rig.ExitInterrupted
		case err != nil:
			return rig.Fail("attack", fmt.Errorf("%s: %w", s.name, err), stderr)
		}
		m.row(stdout)
		if len(m.missed()) > 0 {
			code = rig.ExitBroken
		}
	}
	return code
}

// parse reads the command line: the rows to measure, and how.
func parse(args []string, stderr io.Writer) (list []scenario, o options, err error) {
	f := flag.NewFlagSet("attack", flag.ContinueOnError)
	f.SetOutput(stderr)
	pattern := f.String("run", ".", "measure the rows whose name matches this `pattern`")
	redis := f.Bool("redis", false, "also the rows with Redis")
	f.Float64Var(&o.scale, "scale", 1, "multiply keys, room and rates by this")
	f.Uint64Var(&o.seed, "seed", 1, "of what is left to chance")
	if err := f.Parse(args); err != nil {
		return nil, o, err
	}
	var wrong rig.Problems
	wrong.Unless(f.NArg() == 0, "unexpected arguments %q", f.Args())
	wrong.Unless(o.scale >= 0.01 && o.scale <= 10, "-scale is %g, and must be 0.01 to 10", o.scale)
	matches, err := regexp.Compile(*pattern)
	if wrong.Unless(err == nil, "-run: %v", err); err == nil {
		list = selected(rows(), matches, *redis)
		wrong.Unless(len(list) > 0, "no row matches %q; some need -redis", *pattern)
	}
	return list, o, wrong.Err()
}
