package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/limit"
)

// maxSubjectBytes bounds the key in a QuotaFailure: details travel in a trailer, whose
// size clients bound.
const maxSubjectBytes = 256

// RefusedError is the error of a call that an interceptor of this package refused. gRPC
// sends its status; the rest stays in the process. On a client it tells a call that was
// not sent from one that the server refused: use [errors.As]. It is immutable.
type RefusedError struct {
	// Rule is the rule that refused; nil if it did not come to that.
	Rule *limit.Rule
	// Result is the limiter's answer. Of a client that waits only RetryAfter is known.
	Result limit.Result
	// Err is why there was no answer: the error of a key function, of [Wait] or of the limiter.
	// Else nil.
	Err error

	status *status.Status
	// unavailable tells that the limiter returned an error, for no fault of the call.
	unavailable bool
}

// GRPCStatus returns what the caller is told.
func (e *RefusedError) GRPCStatus() *status.Status {
	if e == nil || e.status == nil {
		return status.New(codes.Internal, "rate limit: no reason known")
	}
	return e.status
}

func (e *RefusedError) Error() string {
	s := "grpclimit: " + e.GRPCStatus().Message()
	if e != nil && e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *RefusedError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// noKey is the refusal of a call whose key is not known.
func noKey(code codes.Code, why error) *RefusedError {
	return &RefusedError{Err: why, status: status.New(code, "rate limit: the call has no key")}
}

// notDecided is the refusal of a call that the limiter cannot decide.
func notDecided(rule *limit.Rule, res limit.Result, why error) *RefusedError {
	s := status.Newf(codes.Internal, "rate limit: cannot be decided: policy %q", nameOf(rule))
	return &RefusedError{Rule: rule, Result: res, Err: why, status: s}
}

// exceeded is the refusal of a call by a limit. subject is the key if callers are to see
// it, else "".
func exceeded(rule *limit.Rule, res limit.Result, subject string, why error) *RefusedError {
	name := nameOf(rule)
	s := status.Newf(codes.ResourceExhausted, "rate limit exceeded: policy %q", name)
	if detailed, err := s.WithDetails(details(name, subject, res.RetryAfter)...); err == nil {
		s = detailed
	}
	return &RefusedError{Rule: rule, Result: res, Err: why, status: s}
}

func details(name, subject string, retryAfter time.Duration) []protoadapt.MessageV1 {
	if subject == "" {
		subject = name
	}
	quota := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: text(subject), Description: fmt.Sprintf("policy %q", name),
	}}}
	if retryAfter <= 0 || retryAfter == limit.Never {
		return []protoadapt.MessageV1{quota}
	}
	return []protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)}, quota}
}

// text makes s fit a protobuf string, which must be UTF-8: a key may be any bytes.
func text(s string) string {
	if len(s) > maxSubjectBytes {
		s = s[:maxSubjectBytes]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func nameOf(rule *limit.Rule) string {
	if rule == nil {
		return ""
	}
	return rule.Name()
}

// notWaited is the error of a call that was not waited for to the end.
func notWaited(ctx context.Context, rule *limit.Rule, subject string, err error) error {
	var late *limit.WaitError
	if errors.As(err, &late) {
		return exceeded(rule, limit.Result{Limit: rule.Limit(), RetryAfter: late.Need}, subject, err)
	}
	return notAnswered(ctx, rule, limit.Result{}, err)
}

// notAnswered is the error of a call for which the limiter has returned an error.
func notAnswered(ctx context.Context, rule *limit.Rule, res limit.Result, err error) error {
	e := &RefusedError{Rule: rule, Result: res, Err: err}
	var broken *limit.KeyError
	switch over := undecided.Over(ctx); {
	case errors.As(err, &broken), errors.Is(err, limit.ErrNilRule), errors.Is(err, limit.ErrInvalidN), errors.Is(err, limit.ErrUnsupported):
		return notDecided(rule, res, err)
	case over != nil:
		e.status = status.New(status.FromContextError(over).Code(), "rate limit: the call ended while it waited")
	case errors.Is(err, limit.ErrClosed):
		e.status = status.New(codes.Unavailable, "rate limit: the limiter is closed")
	default:
		e.status = status.New(codes.Unavailable, "rate limit: the limiter is unavailable")
		e.unavailable = true
	}
	return e
}

// isUnavailable reports whether a call was not decided because the limiter is unavailable.
func isUnavailable(err error) bool {
	var e *RefusedError
	return errors.As(err, &e) && e.unavailable
}
