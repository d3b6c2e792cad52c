// Command demo shows what a hybrid limiter is for. Several nodes, each with a
// limiter and a Redis client of its own, are offered more than their common
// limits. Redis is taken away from them and comes back, and everything that was
// admitted is checked against what the README promises, by an oracle that
// knows nothing of how limiters work. The exit code is 1 if a promise was
// broken, 2 if the demo could not run.
//
//	go run ./bench/demo                  # an embedded Redis behind a wire that fails
//	go run ./bench/demo -server          # a redis-server child: killed, restarted empty, frozen
//	go run ./bench/demo -redis host:6379 # your own server, cut off from the nodes, never touched
//	go run ./bench/demo -figures FILE    # writes what bench/report makes a plot of
//
// What it prints fits a terminal of 80 columns. Ctrl-C ends it with a summary of what there
// was until then, which judges nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/rig"
	"github.com/hybridlimit/hybridlimit/limit"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit codes.
const (
	exitBroken      = rig.ExitBroken
	exitFailed      = rig.ExitFailed
	exitInterrupted = rig.ExitInterrupted
)

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// go-redis reports every refused dial of its pool to standard error, and
	// refused dials are what this is about. The switch is global: for a
	// program, not for a library.
	logging.Disable()
	human := stdout
	if c.json {
		human = stderr
	}
	r, err := demo(ctx, c, human)
	switch {
	case ctx.Err() != nil:
		return interrupted(r, c.json, human, stdout, stderr)
	case err != nil:
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	return conclude(r, c.json, human, stdout, stderr)
}

// interrupted shows what there was until then, if the load had begun.
func interrupted(r *report, asJSON bool, human, stdout, stderr io.Writer) int {
	if r != nil {
		conclude(r, asJSON, human, stdout, stderr)
	}
	fmt.Fprintln(stderr, "demo: interrupted")
	return exitInterrupted
}

func conclude(r *report, asJSON bool, human, stdout, stderr io.Writer) int {
	r.print(human)
	if asJSON {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			fmt.Fprintln(stderr, "demo:", err)
			return exitFailed
		}
	}
	if !r.OK {
		return exitBroken
	}
	return 0
}

// demo runs the whole story and judges it. If ctx ends while it runs, it returns the error
// of ctx, and what was seen until then if the load had begun.
func demo(ctx context.Context, c config, out io.Writer) (*report, error) {
	w, err := newWorld(c)
	if err != nil {
		return nil, err
	}
	defer w.close()
	f, err := newFleet(c, w)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	s := &show{config: c, world: w, fleet: f, traffic: newTraffic(c), out: out}
	err = s.play(ctx)
	if ctx.Err() != nil {
		return newInterrupted(s), ctx.Err()
	}
	if err == nil && c.figures != "" {
		err = s.writeFigures(c.figures)
	}
	if err != nil {
		return nil, err
	}
	b, err := f.settle(ctx, s.atLoss)
	if ctx.Err() != nil {
		return newInterrupted(s), ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return newReport(s, b), nil
}

// config is what the flags say.
type config struct {
	nodes, keys int
	length      time.Duration
	overload    float64
	rule        *limit.Rule
	redis       string
	server      bool
	json        bool
	figures     string
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	seconds := fs.Float64("seconds", 30, "how long to offer load")
	rule := fs.String("rule", "1000/2s", "the `limit/window` of every key, a sliding window")
	fs.IntVar(&c.nodes, "nodes", 3, "nodes that share the limits")
	fs.IntVar(&c.keys, "keys", 300, "keys; the k-th is asked 1/k as often as the hottest")
	fs.Float64Var(&c.overload, "overload", 3, "how many times its limit the hottest key is offered")
	fs.StringVar(&c.redis, "redis", "", "`host:port` of a Redis to use; only the way to it is made to fail")
	fs.BoolVar(&c.server, "server", false, "start a redis-server, kill it, restart it empty, freeze it")
	fs.BoolVar(&c.json, "json", false, "print the result as one JSON object on standard output, everything else on standard error")
	fs.StringVar(&c.figures, "figures", "", "write figures of each quarter of a second to this `file`, of which bench/report makes a plot")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	c.length = time.Duration(*seconds * float64(time.Second))
	var err error
	c.rule, err = parseRule(*rule)
	return c, errors.Join(err, c.validate(fs.Args()))
}

// parseRule reads "1000/2s".
func parseRule(text string) (*limit.Rule, error) {
	units, window, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(units, 10, 64)
	d, err2 := time.ParseDuration(window)
	if err = errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("-rule %q is not like 1000/2s: %w", text, err)
	}
	if d < arith.DefaultBuckets*slot {
		return nil, fmt.Errorf("-rule %q: the window must be at least %v, what is recorded is no finer", text, arith.DefaultBuckets*slot)
	}
	return limit.SlidingWindow("demo", n, d)
}

// validate names every flag that makes no sense.
func (c config) validate(rest []string) error {
	var p rig.Problems
	p.Unless(len(rest) == 0, "unexpected arguments %q", rest)
	p.Unless(c.nodes >= 1 && c.nodes <= 100, "-nodes %d: must be 1 to 100", c.nodes)
	p.Unless(c.keys >= 1 && c.keys <= 100_000, "-keys %d: must be 1 to 100,000", c.keys)
	p.Unless(c.length >= minLength && c.length <= time.Hour, "-seconds %v: must be %v to 3600", c.length.Seconds(), minLength.Seconds())
	p.Unless(c.overload > 0 && c.overload <= 100, "-overload %v: must be above 0 and at most 100", c.overload)
	p.Unless(c.offered() <= mostOffered, "-rule, -overload: %.3g checks/s in all, at most %.3g: a burst would last for seconds", c.offered(), mostOffered)
	p.Unless(c.rule == nil || c.rule.Limit() >= int64(c.nodes), "-rule: a limit below the number of nodes: each admits one unit per window when alone")
	p.Unless(!c.server || c.redis == "", "-server and -redis exclude each other")
	return p.Err()
}

// mostOffered is how many checks a second are offered at most, by all nodes together.
const mostOffered = 10e6

// offered returns how many checks a second are offered, by all nodes together; 0 without a rule.
func (c config) offered() (sum float64) {
	if c.rule == nil {
		return 0
	}
	hottest := c.overload * float64(c.rule.Limit()) / c.rule.Period().Seconds()
	for k := range min(max(c.keys, 0), 100_000) {
		sum += hottest / float64(k+1)
	}
	return sum
}

// minLength is the shortest run in which every part of the story has room.
const minLength = 3 * time.Second
