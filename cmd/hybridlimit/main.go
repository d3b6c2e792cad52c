// Command hybridlimit looks at limits in Redis, changes them, and checks what they need.
//
//	hybridlimit peek acme --rule api=sliding-window,100/1m
//	hybridlimit doctor --redis redis://localhost:6379
//
// docs/cli.md shows each command and says what the exit codes mean.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	_ "time/tzdata" // images without it have no time zones

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
)

// The exit codes, which docs/cli.md promises to scripts.
const (
	exitOK     = 0
	exitFound  = 1 // the command works, and what it looks at is not as it should be
	exitUsage  = 2 // flags, a rule or a rules file that cannot be used
	exitRedis  = 3 // Redis cannot be reached, or refuses
	exitFailed = 4 // anything else
)

// commands is the command line.
type commands struct {
	JSON        bool             `name:"json" help:"Print JSON. -json is the same."`
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version of this program, and end."`

	Peek        peekCmd        `cmd:"" help:"Show what is left of keys, without taking anything."`
	Reset       resetCmd       `cmd:"" help:"Forget what keys have used, for the whole fleet."`
	Set         setCmd         `cmd:"" help:"Set how much a key has used, for the whole fleet."`
	Top         topCmd         `cmd:"" help:"List the keys that are nearest to their limits."`
	Watch       watchCmd       `cmd:"" help:"Show a key, or totals, again and again."`
	Quarantined quarantinedCmd `cmd:"" help:"List keys that limiters cannot use and set aside."`
	Nodes       nodesCmd       `cmd:"" help:"List the live nodes."`
	Doctor      doctorCmd      `cmd:"" help:"Check a Redis and its settings, and say what to change."`
	Serve       serveCmd       `cmd:"" help:"Serve the limits of a rules file to Envoy, to Redis clients, and as JSON."`
	Ready       readyCmd       `cmd:"" help:"Ask a server whether it is ready."`
	Validate    validateCmd    `cmd:"" help:"Check rules files."`
	Version     versionCmd     `cmd:"" help:"Print the version of this program."`
	Completion  completionCmd  `cmd:"" help:"Print what a shell needs to complete command lines."`
	Man         manCmd         `cmd:"" help:"Print a page for man."`
}

// program is what a command works with: kong hands it to Run.
type program struct {
	*screen.Screen
	ctx         context.Context
	out, errOut io.Writer
	in          io.Reader
	environ     []string
	said        noting // what kong prints by itself: help, and the version
}

// noting notes the first error of a writer, for who writes does not look.
type noting struct {
	io.Writer
	err error
}

func (n *noting) Write(b []byte) (int, error) {
	k, err := n.Writer.Write(b)
	n.err = cmp.Or(n.err, err)
	return k, err
}

// exitError is an error that has an exit code of its own.
type exitError struct {
	code int
	err  error // nil if everything has been said
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// found is what a command returns that has shown what is wrong.
var found = &exitError{code: exitFound}

// usage marks an error as one of the arguments, unless it has an exit code already.
func usage(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &exitError{exitUsage, err}
}

func main() {
	redis.SetLogger(silence{})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends what does not heed the first
	p := &program{ctx: ctx, out: os.Stdout, errOut: os.Stderr, in: os.Stdin, environ: os.Environ()}
	os.Exit(p.run(os.Args[1:]))
}

// silence is for what go-redis logs of its own accord: commands say what went wrong.
type silence struct{}

// Printf drops it.
func (silence) Printf(context.Context, string, ...any) {}

// run parses the arguments, runs the command, and returns the exit code.
func (p *program) run(args []string) (code int) {
	p.Screen, p.said = screen.New(p.out, p.environ), noting{Writer: p.out}
	line := new(commands)
	ended := -1 // kong wants the process to end once it has printed help
	parser, err := p.parser(line, func(code int) { ended = code })
	if err != nil {
		return p.fail(nil, err)
	}
	parsed, err := parser.Parse(spelled(args))
	switch {
	case p.said.err != nil:
		return p.fail(nil, p.said.err)
	case ended >= 0:
		return ended
	case err != nil:
		var wrong *kong.ParseError
		if errors.As(err, &wrong) {
			parsed = wrong.Context
		}
		return p.fail(parsed, usage(fmt.Errorf("%w (hybridlimit --help)", err)))
	}
	p.JSON = line.JSON
	return p.fail(parsed, parsed.Run(p))
}

// parser returns what reads the command line into a value.
func (p *program) parser(into *commands, exit func(code int)) (*kong.Kong, error) {
	dropEmptyVariables()
	return kong.New(into,
		kong.Name("hybridlimit"),
		kong.Description("Looks at limits in Redis, changes them, and checks what they need. Exit codes: 0 fine, 1 something was found, 2 usage, 3 Redis, 4 anything else."),
		kong.Writers(&p.said, p.errOut),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: screen.Width}),
		kong.PostBuild(serveVariables), kong.PostBuild(placeholders),
		kong.KindMapper(reflect.String, kong.MapperFunc(asItIs)),
		kong.ValueFormatter(helpOf),
		kong.Vars{"version": thisVersion().String()},
		kong.ExplicitGroups([]kong.Group{{Key: "redis", Title: "Redis:"}, {Key: "rule", Title: "Rule:"}}),
	)
}

// asItIs takes a text as it is. Kong would replace bytes that are not UTF-8, and a key may have them.
func asItIs(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text, ok := token.Value.(string)
	if !ok {
		text = fmt.Sprint(token.Value)
	}
	target.SetString(text)
	return nil
}

// spelled returns arguments with -json as kong has it.
func spelled(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if arg == "--" {
			return append(out[:i], args[i:]...)
		}
		if out[i] = arg; arg == "-json" {
			out[i] = "--json"
		}
	}
	return out
}

// fail says what is wrong, if anything is, and returns the exit code. line is nil if there is none.
func (p *program) fail(line *kong.Context, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	text := err.Error()
	if code != exitRedis { // whose advice names flags that are not wrong
		text = inFlags(line, text)
	}
	if text != "" {
		fmt.Fprintln(p.errOut, "hybridlimit:", text)
	}
	return code
}
