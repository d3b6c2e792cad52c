package rls

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limiter is what the service needs; *hybrid.Limiter and *local.Limiter have it.
type Limiter interface {
	Take(key string, rule *limit.Rule, n int64) limit.Result
	Peek(key string, rule *limit.Rule) limit.Result
	TakeAll(checks ...limit.Check) limit.AllResult
	Charge(key string, rule *limit.Rule, n int64) (charged int64)
	Refund(key string, rule *limit.Rule, n int64) (back int64)
}

// Options says what a [Service] serves. Limiter and Rules are required.
type Options struct {
	Limiter Limiter
	// Rules returns the rules in force.
	Rules func() *rules.Set
	// Look is told of keys that are looked at without being counted. Default: nobody is.
	Look func(key string, rule *limit.Rule)
	// ChargeRefused counts a refused request of several hits all the same. It is for hits that are
	// reported after the fact, as Envoy does with apply_on_stream_done: without it the last report
	// of a window is lost, and the limit is never reached. What does not fit is a debt, see Charge
	// of package hybrid. Each descriptor then counts by itself, as in envoyproxy/ratelimit.
	ChargeRefused bool
	// Shadow answers OK to every request, whatever the statuses of its descriptors say.
	Shadow bool
	// Headers adds RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset to the answers, for
	// Envoy to add them to its responses, and Retry-After to those that refuse.
	Headers bool
}

// Service answers rate limit requests. Make it with [New]. It is safe for concurrent use.
type Service struct {
	ratelimit.UnimplementedRateLimitServiceServer
	o         Options
	overrides overrides
	count     struct{ requests, refused, shadowed, invalid, undecided atomic.Uint64 }
}

// Stats is what a service has done since it was made.
type Stats struct {
	Requests uint64 // that were answered
	Refused  uint64 // of these, those that were over a limit
	Shadowed uint64 // those that would have been, but for Options.Shadow
	Invalid  uint64 // requests that cannot be answered, because of what they are
	// Undecided is requests that Redis was to decide, because a limit is exact, and has not. They were
	// answered with an error, too.
	Undecided uint64
}

// New returns a service.
func New(o Options) (*Service, error) {
	if o.Limiter == nil || o.Rules == nil {
		return nil, errors.New("rls: Options.Limiter and Options.Rules are required")
	}
	if o.Look == nil {
		o.Look = func(string, *limit.Rule) {}
	}
	return &Service{o: o, overrides: overrides{known: map[override]*rules.Descriptor{}}}, nil
}

// maxDescriptors bounds what one request may ask for. Envoy sends one for each of its rate
// limit actions, so a few.
const maxDescriptors = 100

// ShouldRateLimit decides a request. It waits only if one of its limits is exact: then Redis decides,
// and ctx should end when the client does not wait any more.
//
// Errors have the code InvalidArgument: an empty domain, no descriptors or more than 100, or
// a limit in the request that cannot be used. With an exact limit there are also Unavailable (Redis has
// not decided: the hits may have been taken), Canceled and DeadlineExceeded (the same, because ctx has
// ended) and Unimplemented (on a Cluster the keys of the request are in several shards).
func (s *Service) ShouldRateLimit(ctx context.Context, req *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	res, _, err := s.Decide(ctx, req)
	return res, err
}

// Decide is ShouldRateLimit, and returns as well after which time a request that is refused would
// be admitted; 0 if that is not known, or never.
func (s *Service) Decide(ctx context.Context, req *ratelimit.RateLimitRequest) (res *ratelimit.RateLimitResponse, retry time.Duration, err error) {
	asked, err := s.read(req)
	if err != nil {
		s.count.invalid.Add(1)
		return nil, 0, status.Error(codes.InvalidArgument, "rls: "+err.Error())
	}
	if err := s.decide(ctx, asked); err != nil {
		return nil, 0, s.undecided(err)
	}
	s.count.requests.Add(1)
	res = &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}
	for i := range asked {
		st := asked[i].status()
		res.Statuses = append(res.Statuses, st)
		if st.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
			res.OverallCode = st.GetCode()
		}
	}
	if s.o.Headers {
		res.ResponseHeadersToAdd = headers(asked)
	}
	switch {
	case res.GetOverallCode() == ratelimit.RateLimitResponse_OK:
	case s.o.Shadow:
		s.count.shadowed.Add(1)
		res.OverallCode = ratelimit.RateLimitResponse_OK
	default:
		s.count.refused.Add(1)
		retry = retryAfter(asked)
	}
	return res, retry, nil
}

// read finds the limits of a request.
func (s *Service) read(req *ratelimit.RateLimitRequest) ([]question, error) {
	switch n := len(req.GetDescriptors()); {
	case req.GetDomain() == "":
		return nil, errors.New("the domain must not be empty")
	case n == 0:
		return nil, errors.New("there must be a descriptor")
	case n > maxDescriptors:
		return nil, fmt.Errorf("%d descriptors are too many, at most %d are allowed", n, maxDescriptors)
	}
	set := s.o.Rules()
	asked := make([]question, len(req.GetDescriptors()))
	found := make([]*rules.Descriptor, len(asked))
	for i, d := range req.GetDescriptors() {
		entries := make([]rules.Entry, len(d.GetEntries()))
		for j, e := range d.GetEntries() {
			entries[j] = rules.Entry{Key: e.GetKey(), Value: e.GetValue()}
		}
		q := &asked[i]
		if q.n, q.back = hits(req, d); q.n > arith.MaxUnits {
			return nil, fmt.Errorf("hits_addend of descriptor %d is %d, at most %d are allowed", i, q.n, uint64(arith.MaxUnits))
		}
		var err error
		if found[i], err = s.find(set, req.GetDomain(), entries, d.GetLimit()); err != nil {
			return nil, fmt.Errorf("limit of descriptor %d: %w", i, err)
		}
		if found[i] != nil {
			q.key = found[i].Key(entries)
		}
	}
	rules.DropReplaced(found)
	for i := range asked {
		asked[i].limit = found[i]
	}
	return asked, nil
}

// Stats returns what the service has done.
func (s *Service) Stats() Stats {
	return Stats{
		Requests: s.count.requests.Load(), Refused: s.count.refused.Load(),
		Shadowed: s.count.shadowed.Load(), Invalid: s.count.invalid.Load(),
		Undecided: s.count.undecided.Load(),
	}
}
