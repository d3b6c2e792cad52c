package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// Exit codes of a program that checks promises.
const (
	ExitBroken      = 1 // a promise was broken
	ExitFailed      = 2 // the program could not run
	ExitInterrupted = 130
)

// Interruptible returns a context that ends when the user interrupts the program. It also
// silences go-redis, which reports every refused dial of its pool to standard error: refused
// dials are what these programs are about. That switch is global.
func Interruptible() (context.Context, context.CancelFunc) {
	logging.Disable()
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// Fail prints why a program could not run, and returns its exit code.
func Fail(name string, err error, stderr io.Writer) int {
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	return ExitFailed
}

// Problems collects what is wrong with the flags of a program.
type Problems []error

// Unless adds a problem if ok is false.
func (p *Problems) Unless(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Err returns one error that names all problems, nil if there are none.
func (p Problems) Err() error { return errors.Join(p...) }
