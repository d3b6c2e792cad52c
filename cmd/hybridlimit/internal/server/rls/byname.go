package rls

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Ask takes n units of a key under a rule of the section rules of the file; 0 says whether one
// would be admitted. Of a key that nothing limits Limit is -1. With Options.Shadow what is refused
// is answered as a dry run would.
//
// Only an exact rule waits, for ctx at most. The error is [byname.ErrNoRule], or has the code
// Unimplemented: the limiter cannot decide by the rule; or it is that of an exact rule, see
// [Service.ShouldRateLimit].
func (s *Service) Ask(ctx context.Context, rule, key string, n int64) (res limit.Result, err error) {
	d := s.decider()
	if n == 0 {
		res, err = d.Peek(rule, key)
	} else {
		res, err = d.Take(ctx, rule, key, n)
	}
	if s.o.Shadow && isUndecided(err) { // it would not refuse either
		res, err = d.Peek(rule, key)
	}
	if res, err = s.decided(res, err); err != nil {
		return res, err
	}
	switch {
	case res.Allowed:
	case s.o.Shadow:
		s.count.shadowed.Add(1)
		res.Allowed, res.WouldRefuse = true, true
	default:
		s.count.refused.Add(1)
	}
	return res, nil
}

// Charge counts n units of a key, whether they fit or not; below 0 it gives units back. It answers as
// Ask of 0 units does afterwards, and has its errors.
func (s *Service) Charge(rule, key string, n int64) (limit.Result, error) {
	return s.decided(s.decider().Charge(rule, key, n))
}

func (s *Service) decider() byname.Decider {
	return byname.Decider{Limiter: s.o.Limiter, Rules: s.o.Rules, Look: s.o.Look}
}

// decided counts a request by the name of a rule.
func (s *Service) decided(res limit.Result, err error) (limit.Result, error) {
	if err == nil && res.Source == limit.SourceInvalid {
		err = status.Error(codes.Unimplemented, "rls: This server cannot decide by such a rule")
	}
	switch {
	case isUndecided(err):
		return limit.Result{}, s.undecided(err)
	case err != nil:
		s.count.invalid.Add(1)
		return limit.Result{}, err
	}
	s.count.requests.Add(1)
	return res, nil
}
