package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// New returns a middleware that limits requests by one rule and key. See [NewAll] for its
// errors.
func New(lim limit.ContextLimiter, rule *limit.Rule, key KeyFunc, o Options) (func(http.Handler) http.Handler, error) {
	return NewAll(lim, o, Limit{Rule: rule, Key: key})
}

// NewAll returns a middleware that lets a request pass if all limits admit it. Then it is
// charged to all of them, else to none. Give several limits rules of different names.
//
// It returns an error that says everything that is wrong: there is no limiter or no limit, a
// rule or a key function is nil, the limiter does not support a rule, an exception is wrong, or a policy has a name that the fields cannot carry. Names of rules that RuleFor returns are not known yet; what
// is not printable ASCII in them, is sent as %xx.
func NewAll(lim limit.ContextLimiter, o Options, limits ...Limit) (func(http.Handler) http.Handler, error) {
	c := &config{lim: lim, o: o.withDefaults()}
	c.log = undecided.New(o.Logger, c.o.Clock, "httplimit: a request cannot be decided")
	c.kept = undecided.New(o.Logger, c.o.Clock, "httplimit: units cannot be handed back")
	c.owed = undecided.New(o.Logger, c.o.Clock, "httplimit: a cost cannot be settled")
	for i := range limits {
		c.limits = append(c.limits, &boundLimit{Limit: limits[i]})
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	for _, l := range c.limits {
		if l.Rule != nil {
			l.item = l.items(l.Rule)
		}
	}
	return func(next http.Handler) http.Handler { return &handler{c, next} }, nil
}

func (o Options) withDefaults() Options {
	if o.Refused == nil {
		o.Refused = answerRefused
	}
	if o.OnError == nil {
		o.OnError = answerError
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	return o
}

// validate reports everything that is wrong.
func (c *config) validate() error {
	var errs []error
	if inside.IsNil(c.lim) {
		errs = append(errs, errors.New("httplimit: limiter is nil"))
	}
	if c.o.Headers > NoHeaders {
		errs = append(errs, fmt.Errorf("httplimit: Headers is %d, must be one of the constants", c.o.Headers))
	}
	if len(c.limits) == 0 {
		errs = append(errs, errors.New("httplimit: no limits"))
	}
	for i, l := range c.limits {
		if err := c.problems(l); err != nil {
			errs = append(errs, fmt.Errorf("httplimit: limit %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// problems reports everything that is wrong with one limit.
func (c *config) problems(l *boundLimit) error {
	var errs []error
	if l.Key == nil {
		errs = append(errs, errors.New("key function is nil: there is no safe default"))
	}
	switch {
	case l.RuleFor != nil:
		if l.Rule != nil {
			errs = append(errs, errors.New("both Rule and RuleFor"))
		}
	case !l.Rule.Valid():
		errs = append(errs, limit.ErrNilRule)
	default:
		if err := inside.CheckRule(c.lim, l.Rule); err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	if l.except, err = c.exceptionsOf(&l.Limit); err != nil {
		errs = append(errs, err)
	}
	if name := l.name(l.Rule); c.o.Headers == DraftHeaders && !isPrintable(name) {
		errs = append(errs, fmt.Errorf("policy %q is not printable ASCII: set Policy", name))
	}
	return errors.Join(errs...)
}
