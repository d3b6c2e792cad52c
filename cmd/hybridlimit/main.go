// Command hybridlimit looks at limits in Redis, changes them, and checks what they need.
//
//	hybridlimit peek acme --rule api=sliding-window,100/1m
//	hybridlimit doctor --redis redis://localhost:6379
//	hybridlimit help
//
// See docs/cli.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
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
	Version versionCmd `cmd:"" help:"Print the version of this program."`
}

// program is what a command works with. It is bound to each command's Run.
type program struct {
	ctx         context.Context
	out, errOut io.Writer
	getenv      func(string) string
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

// usage marks an error as one of the arguments.
func usage(err error) error { return &exitError{exitUsage, err} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	p := &program{ctx: ctx, out: os.Stdout, errOut: os.Stderr, getenv: os.Getenv}
	code := p.run(os.Args[1:])
	stop()
	os.Exit(code)
}

// run parses the arguments, runs the command, and returns the exit code.
func (p *program) run(args []string) (code int) {
	// kong ends the process after it has printed help.
	type ended struct{ code int }
	defer func() {
		if r := recover(); r != nil {
			e, fine := r.(ended)
			if !fine {
				panic(r)
			}
			code = e.code
		}
	}()
	parser, err := kong.New(new(commands),
		kong.Name("hybridlimit"),
		kong.Description("Looks at limits in Redis, changes them, and checks what they need."),
		kong.Writers(p.out, p.errOut),
		kong.Exit(func(code int) { panic(ended{code}) }),
		kong.UsageOnError(),
	)
	if err != nil {
		return p.fail(err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return p.fail(usage(err))
	}
	return p.fail(parsed.Run(p))
}

// fail says what is wrong, if anything is, and returns the exit code.
func (p *program) fail(err error) int {
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(p.errOut, "hybridlimit:", text)
	}
	return code
}
