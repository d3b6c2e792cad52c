package httplimit

import (
	"context"
	"errors"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/limit"
)

// ErrUnavailable reports that the limiter has returned an error instead of a decision, such as
// while Redis is away. It arrives wrapped, with that error beside it.
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

// isMisuse reports whether a limiter says that it was asked wrongly.
func isMisuse(err error) bool {
	return errors.Is(err, limit.ErrNilRule) || errors.Is(err, limit.ErrInvalidN) || errors.Is(err, limit.ErrUnsupported)
}

// noAnswer is an error of the limiter about one request.
type noAnswer struct {
	err  error
	over error // of the request's context; nil if that lasts
}

func newNoAnswer(ctx context.Context, err error) *noAnswer {
	return &noAnswer{err, undecided.Over(ctx)}
}

func (e *noAnswer) Error() string {
	if e.over != nil {
		return "httplimit: the request has ended before it was decided: " + e.over.Error()
	}
	return ErrUnavailable.Error() + ": " + e.err.Error()
}

func (e *noAnswer) Is(target error) bool { return target == ErrUnavailable && e.over == nil }

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

// isGone reports whether the client has gone before its request was decided.
func isGone(err error) bool {
	var e *noAnswer
	return errors.As(err, &e) && errors.Is(e.over, context.Canceled)
}
