package rules

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Options says how [Watch] follows a file. The zero value is ready to use.
type Options struct {
	// AllowRemoval accepts a file that lacks what is in force although nothing shows that it
	// is whole. Without it such a file is refused, because one that is cut off looks the
	// same: end the file with a line of three dots to remove something. JSON needs none, as
	// its last bracket shows the same. Set it only if the file is always replaced as a whole,
	// by renaming.
	AllowRemoval bool
	// Quiet is how long a file must not have changed before it is read again. If it does not
	// stop to change it is read after ten times that. Default 100 ms; 1 ms to 1 min.
	Quiet time.Duration
	// Poll is how often the file is read without a notice of the system, for file systems
	// that give none. Default 30 s; 10 ms to 1 h.
	Poll time.Duration
	// Check says what is wrong with a rule that the limiter cannot decide by, such as the
	// CheckRule method of a hybrid.Limiter. A file with such a rule, be it of a plan, an
	// override or a descriptor, is refused like one with another mistake. It must not call
	// methods of the [File]. Default: every rule is fine.
	Check func(rule *limit.Rule) error
	// Clock is for the times in [Stats]. Default [clock.System].
	Clock clock.Clock
	// Logger gets one line for each change of the rules, at level Info, one when the file
	// becomes bad, at level Error, and one in 10 s at level Warn while a rule or a plan is looked
	// up that the file does not have. Default: [slog.Default] when the line is written, for
	// levels Warn and Error and for the change that mends a bad file. A logger of
	// [slog.DiscardHandler] is silent.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Quiet == 0 {
		o.Quiet = 100 * time.Millisecond
	}
	if o.Poll == 0 {
		o.Poll = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	return o
}

// validate reports every bad option at once. o has its defaults.
func (o Options) validate() error {
	var errs []error
	between := func(name string, v, least, most time.Duration) {
		if v < least || v > most {
			errs = append(errs, fmt.Errorf("rules: Options.%s is %v, must be %v to %v", name, v, least, most))
		}
	}
	between("Quiet", o.Quiet, time.Millisecond, time.Minute)
	between("Poll", o.Poll, 10*time.Millisecond, time.Hour)
	return errors.Join(errs...)
}
