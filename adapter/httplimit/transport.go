package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TransportOptions says how requests to an upstream are limited. The zero value waits and
// follows the upstream.
type TransportOptions struct {
	// Base sends the requests. Default [http.DefaultTransport].
	Base http.RoundTripper
	// NoWait refuses a request above the limit at once, with a [*RefusedError].
	NoWait bool
	// MaxWait bounds the wait of a request, which ends with the request's context anyway. A
	// request that would have to wait for longer is refused at once, with a
	// [*limit.WaitError]. Default: no bound.
	MaxWait time.Duration
	// Cost is how many units a request takes. Default 1. A cost of 0 is 1; a negative one is
	// the error of the request, which is not sent. An upstream counts requests: set Ignore. To follow
	// it all the same make a Transport without Cost the Base of this one.
	Cost func(r *http.Request) int64
	// Settle returns what a request has really cost, when that is known: see Settle of [Limit]. It
	// is called once for each request that was sent, when the response's body is closed, which
	// Close then waits for, or at once if there is no response. While a body is not closed, the
	// estimate counts. r is the request as it was sent. A negative cost, or an error of the
	// limiter, is told to OnError, and the estimate stays. The limiter must have Charge and Refund.
	// Set Ignore, as with Cost.
	Settle func(r *http.Request, a Answer) int64
	// Ignore does not follow what the upstream says about its limits. To follow it, the
	// rule must be a bucket: a window has no place for the future.
	Ignore bool
	// MaxFollow bounds the time for which one answer of the upstream can hold back further
	// requests, so that a wrong one does not for ever. Default 10 min; at most 24 h.
	MaxFollow time.Duration
	// OnError hears what went wrong while the upstream was followed or a cost was settled, such
	// as Redis being away. The response is returned all the same. What went wrong before the request was
	// sent is the error of the request. Default: nobody.
	OnError func(r *http.Request, err error)
	// Clock measures how long a request took, also for [Answer], and times in Retry-After of a response that
	// has no Date. Default [clock.System]. Waiting is by the system's timers.
	Clock clock.Clock
}

// RefusedError reports a request that was not sent, because its limit does not admit it.
type RefusedError struct {
	Key    string // in full
	Rule   *limit.Rule
	Result limit.Result
}

// Error says which limit and for how long. The key in it is in quotes, escaped, and cut to 64 bytes.
func (e *RefusedError) Error() string {
	wait := "for ever"
	if e.Result.RetryAfter != limit.Never {
		wait = "for " + e.Result.RetryAfter.String()
	}
	return fmt.Sprintf("httplimit: not sent: %q of %s refuses %s", e.Rule.Name(), escape.Quote(e.Key), wait)
}

// Transport is an [http.RoundTripper] that takes a unit for each request before it sends it, or what Cost
// of [TransportOptions] says. Build one with [NewTransport]; it is safe for concurrent use.
//
// It follows what the upstream answers, downwards only: an answer can take units away and hold requests
// back, never let more pass than the rule. docs/http.md lists the fields that it reads. With a limiter of
// package hybrid or remote the whole fleet knows, for one or two round trips for each such answer.
// Requests that wait already are not held back further.
//
// A request that is not sent is an error of the http.Client, with a cause that errors.As finds: a
// [*RefusedError], a [*limit.WaitError], that of the context, or that of the limiter. What the transport
// below makes of a request does not matter: its units are used, unless Settle says otherwise.
type Transport struct {
	lim      limit.ContextLimiter
	rule     *limit.Rule
	key      KeyFunc
	o        TransportOptions
	follower *follower // nil: the upstream is not followed
}

// NewTransport returns a transport that limits requests by one rule and key, such as the
// host that they go to. It returns an error that says everything that is wrong.
func NewTransport(lim limit.ContextLimiter, rule *limit.Rule, key KeyFunc, o TransportOptions) (*Transport, error) {
	var errs []error
	if inside.IsNil(lim) {
		errs = append(errs, errors.New("httplimit: limiter is nil"))
	}
	if key == nil {
		errs = append(errs, errors.New("httplimit: key function is nil"))
	}
	if o.MaxWait < 0 || o.MaxFollow < 0 || o.MaxFollow > maxMaxFollow {
		errs = append(errs, fmt.Errorf("httplimit: MaxWait is %v and MaxFollow %v, must be at least 0 and the latter at most %v", o.MaxWait, o.MaxFollow, maxMaxFollow))
	}
	if (o.Cost != nil || o.Settle != nil) && !o.Ignore {
		errs = append(errs, errors.New("httplimit: an upstream counts requests, and Cost and Settle do not: set Ignore"))
	}
	switch {
	case !rule.Valid():
		errs = append(errs, fmt.Errorf("httplimit: %w", limit.ErrNilRule))
	case o.Ignore:
	case arith.Of(rule).Algorithm != arith.TokenBucket:
		errs = append(errs, fmt.Errorf("httplimit: only a bucket can follow an upstream, not %v: set Ignore, or use limit.TokenBucket", rule))
	}
	if rule.Valid() {
		errs = append(errs, inside.CheckRule(lim, rule))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	tr := &Transport{lim: lim, rule: rule, key: key, o: o.withDefaults()}
	if !o.Ignore {
		tr.follower = &follower{lim, rule, tr.o.MaxFollow, tr.o.Clock, maxSet}
	}
	return tr, nil
}

func (o TransportOptions) withDefaults() TransportOptions {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.MaxFollow == 0 {
		o.MaxFollow = 10 * time.Minute
	}
	if o.OnError == nil {
		o.OnError = func(*http.Request, error) {}
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	return o
}

// RoundTrip sends a request as soon as the limit admits it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	q, err := t.check(r)
	if err == nil {
		err = t.admit(r.Context(), q)
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	began := t.o.Clock.Now()
	if t.o.Settle != nil {
		return t.sendAndSettle(r, q, began)
	}
	resp, err := t.o.Base.RoundTrip(r)
	if err == nil && resp != nil && t.follower != nil {
		if err := t.follower.follow(r.Context(), q.Key, resp, began); err != nil {
			t.o.OnError(r, fmt.Errorf("httplimit: following the upstream: %w", err))
		}
	}
	return resp, err
}

// check returns what to ask the limiter for a request.
func (t *Transport) check(r *http.Request) (q limit.Check, err error) {
	q.Rule, q.N = t.rule, 1
	if t.o.Cost != nil {
		if q.N, err = units(t.o.Cost(r)); err != nil {
			return q, err
		}
	}
	q.Key, err = keyOf(t.key, r)
	return q, err
}

// CloseIdleConnections is for http.Client, which hands it on.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.o.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// admit takes the units of a request.
func (t *Transport) admit(ctx context.Context, q limit.Check) error {
	if t.o.NoWait {
		if err := ctx.Err(); err != nil {
			return err
		}
		res, err := t.lim.Take(ctx, q.Key, q.Rule, q.N)
		if err == nil && !res.Allowed {
			err = &RefusedError{q.Key, q.Rule, res}
		}
		return err
	}
	if t.o.MaxWait > 0 {
		bounded, cancel := context.WithTimeout(ctx, t.o.MaxWait)
		defer cancel()
		ctx = bounded
	}
	return t.lim.WaitN(ctx, q.Key, q.Rule, q.N)
}
