package httplimit

import (
	"context"
	"errors"
	"slices"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/limit"
)

// ErrUnavailable reports that the limiter has returned an error instead of a decision, such as
// while Redis is away, or when so many requests come at once that calls of Redis time out. It
// arrives wrapped, with that error beside it. A limiter that was closed, and a key that is broken in
// Redis, are no such error.
//
// A request whose own context ended before the limiter answered has the error of the context
// instead. Do not let such a request pass: a client could send requests, close the connection at
// once, and have all of them served uncounted.
var ErrUnavailable = errors.New("httplimit: the limiter cannot decide")

// fault is an error that the service has to mend, not the client.
type fault struct{ err error }

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func isFault(err error) bool {
	var f *fault
	return errors.As(err, &f)
}

// isMisuse reports whether a limiter says that it was asked wrongly, or that what Redis holds under
// the key is none of ours: that lasts until somebody mends it.
func isMisuse(err error) bool {
	var broken *limit.KeyError
	return errors.As(err, &broken) || errors.Is(err, limit.ErrNilRule) || errors.Is(err, limit.ErrInvalidN) || errors.Is(err, limit.ErrUnsupported)
}

// noAnswer is an error of the limiter about one request.
type noAnswer struct {
	err  error
	over error // of the request's context; nil if that lasts
	dry  bool  // all rules are dry runs, which refuse nothing
}

func newNoAnswer(ctx context.Context, err error, checks []limit.Check) *noAnswer {
	enforced := slices.ContainsFunc(checks, func(q limit.Check) bool { return !q.Rule.IsDryRun() })
	return &noAnswer{err, undecided.Over(ctx), !enforced}
}

func (e *noAnswer) Error() string {
	if e.over != nil {
		return "httplimit: the request has ended before it was decided: " + e.over.Error()
	}
	return ErrUnavailable.Error() + ": " + e.err.Error()
}

func (e *noAnswer) Is(target error) bool {
	return target == ErrUnavailable && e.over == nil && !errors.Is(e.err, limit.ErrClosed)
}

func (e *noAnswer) Unwrap() error {
	if e.over != nil {
		return e.over
	}
	return e.err
}

func isNoAnswer(err error) bool {
	var e *noAnswer
	return errors.As(err, &e)
}

// isDry reports whether nothing but dry runs was asked.
func isDry(err error) bool {
	var e *noAnswer
	return errors.As(err, &e) && e.dry
}

// isGone reports whether the client has gone before its request was decided.
func isGone(err error) bool {
	var e *noAnswer
	return errors.As(err, &e) && errors.Is(e.over, context.Canceled)
}
