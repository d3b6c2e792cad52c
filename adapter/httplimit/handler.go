package httplimit

import (
	"context"
	"fmt"
	"net/http"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/limit"
)

// handler limits what reaches next.
type handler struct {
	*config
	next http.Handler
}

// ServeHTTP decides, and answers or passes on.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.o.PassPreflights && isPreflight(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	d, asked := h.decide(r)
	if h.o.OnDecision != nil {
		h.o.OnDecision(r, d)
	}
	if d.Err != nil {
		if !isGone(d.Err) {
			h.log.Note(r.Context(), isFault(d.Err) || isNoAnswer(d.Err), d.Err)
		}
		if isDry(d.Err) {
			h.next.ServeHTTP(w, r)
		} else {
			h.o.OnError(w, r, h.next, d.Err)
		}
		return
	}
	h.writeFields(r.Context(), w.Header(), &d, asked)
	switch {
	case !d.Allowed:
		h.o.Refused(w, r, d)
	case len(d.Checks) == 0 || h.o.RefundOn == nil && !settles(asked):
		h.next.ServeHTTP(w, r)
	default:
		h.serveAndSettle(w, r, &d, asked)
	}
}

// isPreflight reports whether a browser asks whether it may send the request itself.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// decide asks the limiter. It returns the limits beside the decision, one for each check.
func (c *config) decide(r *http.Request) (d Decision, asked []*boundLimit) {
	checks := make([]limit.Check, 0, len(c.limits))
	asked, exempt := c.limits, ""
	for _, l := range c.limits {
		q, by, err := l.check(r)
		switch {
		case err != nil:
			undecided.Count(c.lim, q.Rule)
			return refused(err), nil
		case q.Rule == limit.Unlimited():
			undecided.CountExempt(c.lim, l.counted())
			if c.o.OnDecision != nil && exempt == "" { // nobody else reads it
				exempt = by.String()
			}
			asked = without(asked, len(checks))
		default:
			checks = append(checks, q)
		}
	}
	if len(checks) == 0 {
		d.Allowed, d.By, d.Exempt = true, -1, exempt
		return d, nil
	}
	v, err := c.take(r.Context(), checks)
	switch {
	case err != nil && !isMisuse(err):
		d = refused(newNoAnswer(r.Context(), err, checks))
		d.Source, d.RetryAfter = v.Source, 0 // it is not known
		return d, nil
	case err != nil:
		return refused(&fault{fmt.Errorf("httplimit: the limiter cannot decide by %v: %w", v.Rule, err)}), nil
	case v.Source == limit.SourceInvalid || uint(v.By) >= uint(len(checks)):
		return refused(&fault{fmt.Errorf("httplimit: the limiter cannot decide by %v", v.Rule)}), nil
	}
	d.AllResult, d.Checks, d.Exempt = v, checks, exempt
	d.Policy = asked[v.By].partName(checks[v.By].Rule, v.Rule)
	return d, asked
}

// take asks the limiter.
func (c *config) take(ctx context.Context, checks []limit.Check) (v limit.AllResult, err error) {
	if len(checks) > 1 || checks[0].Rule.Parts() != nil { // which says whose answer it is
		return c.lim.TakeAll(ctx, checks...)
	}
	v.Rule = checks[0].Rule
	v.Result, err = c.lim.Take(ctx, checks[0].Key, v.Rule, checks[0].N)
	return v, err
}

// refused is the decision about a request that cannot be decided.
func refused(err error) (d Decision) {
	d.Err, d.By, d.Source, d.RetryAfter = err, -1, limit.SourceInvalid, limit.Never
	return d
}

// check returns what to ask for a request. Its rule may be unlimited, for the reason that is returned.
func (l *boundLimit) check(r *http.Request) (q limit.Check, by exempted, err error) {
	if l.except != nil {
		q.Rule, by = l.except.find(r, l.Key)
	}
	if q.N = 1; q.Rule == nil {
		if q.Rule = l.Rule; l.RuleFor != nil {
			q.Rule = l.RuleFor(r)
		}
	}
	switch {
	case q.Rule == limit.Unlimited():
		return q, by, nil
	case !q.Rule.Valid():
		return q, by, &fault{fmt.Errorf("httplimit: RuleFor: %w", limit.ErrNilRule)}
	}
	if l.Cost != nil {
		if q.N, err = units(l.Cost(r)); err != nil {
			return q, by, &fault{err}
		}
	}
	q.Key, err = keyOf(l.Key, r)
	return q, by, err
}

// units returns how many units an estimate is. A forgotten one must not let everything pass.
func units(cost int64) (int64, error) {
	if cost < 0 {
		return cost, fmt.Errorf("httplimit: Cost: %w: %d", limit.ErrInvalidN, cost)
	}
	return max(cost, 1), nil
}
