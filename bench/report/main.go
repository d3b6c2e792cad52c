package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], execute, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// options is what the command line says.
type options struct {
	root, out, from string
	parts           []string
	plan            plan
}

func run(ctx context.Context, args []string, do runner, stderr io.Writer) error {
	o, err := readOptions(args, stderr)
	if err != nil {
		return err
	}
	dir := o.out
	if o.from != "" {
		dir = o.from
	} else {
		m := &measurement{root: o.root, dir: dir, plan: o.plan, do: do, tell: stderr}
		if err := m.run(ctx, o.parts); err != nil {
			return err
		}
	}
	return write(dir, o.out, o.parts)
}

func readOptions(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.root, "root", ".", "root of the repository")
	fs.StringVar(&o.out, "out", "", "`directory` to write to (default bench/results, or that of -from)")
	fs.StringVar(&o.from, "from", "", "measure nothing: make tables and plots from the raw results in this `directory`")
	list := fs.String("parts", strings.Join(parts, ","), "what to measure, and to make the pages of; the other parts stay as recorded")
	fs.StringVar(&o.plan.bench, "bench", ".", "benchmarks to run, as for go test; the raw file then holds these alone")
	fs.IntVar(&o.plan.count, "count", 8, "how many passes over all benchmarks")
	fs.StringVar(&o.plan.benchtime, "benchtime", "100ms", "how long each run takes, as for go test")
	fs.IntVar(&o.plan.memoryKeys, "memory.keys", 1_000_000, "keys of which the memory is measured")
	fs.IntVar(&o.plan.memoryCount, "memory.count", 3, "how often that is done")
	fs.IntVar(&o.plan.accuracyRuns, "accuracy.runs", 3, "how often the accuracy is measured")
	fs.IntVar(&o.plan.costPasses, "cost.passes", 5, "how many passes over each load of the part cost")
	fs.StringVar(&o.plan.costRows, "cost.run", ".", "loads to measure there, as for bench/cost; the raw file then holds these alone")
	fs.DurationVar(&o.plan.smallFor, "small.for", 75*time.Second, "how long each row of the part small takes")
	fs.StringVar(&o.plan.smallRows, "small.run", ".", "rows to measure there, as for bench/small; the raw file then holds these alone")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected arguments %q", fs.Args())
	}
	for part := range strings.SplitSeq(*list, ",") {
		if !slices.Contains(parts, part) {
			return o, fmt.Errorf("no part %q, only %s", part, strings.Join(parts, ", "))
		}
		o.parts = append(o.parts, part)
	}
	if o.out == "" {
		if o.out = o.from; o.out == "" {
			o.out = filepath.Join(o.root, "bench", "results")
		}
	}
	return o, nil
}

// pages are those that are made of parts.
var pages = []struct {
	name  string
	parts []string
	write func(recorded) string
}{
	{"README.md", []string{partBench, partMemory, partAccuracy}, page},
	{costPage, []string{partCost}, writeCost},
	{smallPage, []string{partSmall}, writeSmall},
}

// write makes the pages of some parts, and the plots, from the raw results in one
// directory, and puts them into another.
func write(from, to string, parts []string) error {
	r, err := load(from)
	if err != nil {
		return err
	}
	files, err := drawPlots(r)
	if err != nil {
		return err
	}
	for _, p := range pages {
		if slices.ContainsFunc(p.parts, func(part string) bool { return slices.Contains(parts, part) && len(r.part(part).rows) > 0 }) {
			files[p.name] = []byte(p.write(r))
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
