package rls

import (
	"cmp"
	"context"
	"errors"
	"slices"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// question is one descriptor of a request.
type question struct {
	limit *rules.Descriptor // nil: nothing limits it
	key   string
	n     uint64 // hits; 0: is anything left?
	back  bool   // hand n hits back

	over bool
	res  limit.Result
	part *limit.Rule // of several limits the one that the result is of; nil: there is one
}

// limited reports whether the limiter is to be asked.
func (q *question) limited() bool { return q.limit != nil && q.limit.Rule != limit.Unlimited() }

// takes reports whether the question is for units.
func (q *question) takes() bool { return q.limited() && !q.back && q.n > 0 }

// hits returns how many hits a descriptor stands for: its own number, which may be 0, else
// that of the request, where 0 is 1.
func hits(req *ratelimit.RateLimitRequest, d *common.RateLimitDescriptor) (n uint64, back bool) {
	n = max(1, uint64(req.GetHitsAddend()))
	if own := d.GetHitsAddend(); own != nil {
		n = own.GetValue()
	}
	return n, d.GetIsNegativeHits()
}

// countExempt counts the questions that nothing limits, by the keys of their descriptor.
func (s *Service) countExempt(asked []question) {
	v := inside.Of(s.o.Limiter)
	for i := range asked {
		if q := &asked[i]; v != nil && q.limit != nil && !q.limited() && !q.back && q.n > 0 {
			v.CountExempt(q.limit.Group)
		}
	}
}

// decide answers all questions of a request. The error is one of [byname.TakeAll].
func (s *Service) decide(ctx context.Context, asked []question) error {
	s.countExempt(asked)
	admitted := s.look(asked)
	switch {
	case s.o.ChargeRefused:
		each, err := s.takeEach(ctx, asked)
		if err != nil {
			return err
		}
		admitted = admitted && each
	case admitted:
		var err error
		if admitted, err = s.takeAll(ctx, asked); err != nil {
			return err
		}
	default:
		s.describe(asked, -1)
	}
	for i := range asked {
		if q := &asked[i]; q.limited() && q.back {
			// A request that is refused does not happen: nothing is handed back either.
			if admitted {
				s.o.Limiter.Refund(q.key, q.limit.Rule, int64(q.n))
			}
			s.peek(q)
		}
	}
	return nil
}

// peek says how a descriptor stands.
func (s *Service) peek(q *question) {
	if q.limit.Rule.Parts() == nil {
		q.res = s.o.Limiter.Peek(q.key, q.limit.Rule)
		return
	}
	v := decision.Tightest(q.limit.Rule, func(part *limit.Rule) limit.Result { return s.o.Limiter.Peek(q.key, part) })
	q.res, q.part = v.Result, v.Rule
}

// take takes for one descriptor.
func (s *Service) take(ctx context.Context, q *question) error {
	if q.limit.Rule.Parts() == nil && !q.limit.Rule.IsExact() {
		q.res = s.o.Limiter.Take(q.key, q.limit.Rule, int64(q.n))
		return nil
	}
	v, err := byname.TakeAll(ctx, s.o.Limiter, limit.Check{Key: q.key, Rule: q.limit.Rule, N: int64(q.n)})
	if isUndecided(err) && (s.o.Shadow || q.limit.Rule.IsDryRun()) { // nobody is refused
		s.peek(q)
		return nil
	}
	if q.res = v.Result; q.limit.Rule.Parts() != nil {
		q.part = v.Rule
	}
	return err
}

// look answers the questions for no hits at all: whether anything is left. It reports whether
// that is so for each.
func (s *Service) look(asked []question) (admitted bool) {
	admitted = true
	for i := range asked {
		if q := &asked[i]; q.limited() && !q.back && q.n == 0 {
			s.o.Look(q.key, q.limit.Rule)
			s.peek(q)
			q.over = !q.res.Allowed
			admitted = admitted && !q.over
		}
	}
	return admitted
}

// takeEach takes for each descriptor by itself, and charges reports that do not fit. What was not
// decided is not charged, as it may have been taken; the others count all the same. The error is the
// first one.
func (s *Service) takeEach(ctx context.Context, asked []question) (admitted bool, first error) {
	admitted = true
	for i := range asked {
		q := &asked[i]
		if !q.takes() {
			continue
		}
		if err := s.take(ctx, q); err != nil {
			first = cmp.Or(first, err)
			continue
		}
		if q.res.Allowed && !q.res.WouldRefuse {
			continue
		}
		if !q.res.Allowed {
			q.over, admitted = true, false
		}
		if q.n > 1 { // one hit is a request, and a request that is refused has not happened
			s.o.Limiter.Charge(q.key, q.limit.Rule, int64(q.n))
			was := q.res
			s.peek(q)
			q.res.RetryAfter = max(q.res.RetryAfter, was.RetryAfter)
		}
	}
	return admitted, first
}

// takeAll takes for all descriptors or for none.
func (s *Service) takeAll(ctx context.Context, asked []question) (admitted bool, err error) {
	var few [4]limit.Check // more are rare
	var at [4]int
	checks, places := few[:0], at[:0]
	for i := range asked {
		if q := &asked[i]; q.takes() {
			checks, places = append(checks, limit.Check{Key: q.key, Rule: q.limit.Rule, N: int64(q.n)}), append(places, i)
		}
	}
	switch len(checks) {
	case 0:
		return true, nil
	case 1: // the usual case: one answer has it all
		q := &asked[places[0]]
		err := s.take(ctx, q)
		q.over = !q.res.Allowed
		return !q.over, err
	}
	all, err := byname.TakeAll(ctx, s.o.Limiter, checks...)
	switch {
	case isUndecided(err) && s.lenient(checks):
		s.describe(asked, -1)
		return !slices.ContainsFunc(asked, func(q question) bool { return q.over }), nil
	case err != nil:
		return false, err
	case !all.Allowed:
		s.describe(asked, places[all.By])
		asked[places[all.By]].res, asked[places[all.By]].part = all.Result, all.Rule
		return false, nil
	}
	for _, i := range places {
		s.peek(&asked[i])
	}
	return true, nil
}

// lenient reports whether nobody is refused: then memory answers what Redis has not decided.
func (s *Service) lenient(checks []limit.Check) bool {
	return s.o.Shadow || !slices.ContainsFunc(checks, func(q limit.Check) bool { return !q.Rule.IsDryRun() })
}

// isUndecided reports whether Redis was to decide and has not.
func isUndecided(err error) bool {
	var e *byname.UndecidedError
	return errors.As(err, &e)
}

// undecided counts a request that was not decided, and returns the status for its client.
func (s *Service) undecided(err error) error {
	s.count.undecided.Add(1)
	code := codes.Unavailable
	switch {
	case !isUndecided(err):
		return status.Error(codes.Unimplemented, "rls: on a Cluster the keys of a request with an exact limit must be in one shard")
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, "rls: "+err.Error())
}

// describe says of the descriptors of a refused request how they stand: by is over its limit,
// and so are all others that would have refused.
func (s *Service) describe(asked []question, by int) {
	for i := range asked {
		if q := &asked[i]; q.takes() {
			s.peek(q)
			q.over = i == by || !q.limit.Rule.IsDryRun() && q.res.Remaining < int64(q.n)
		}
	}
}
