package rls

import (
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/internal/decision"
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
	c, ok := s.o.Limiter.(interface{ CountExempt(name string) })
	for i := range asked {
		if q := &asked[i]; ok && q.limit != nil && !q.limited() && !q.back && q.n > 0 {
			c.CountExempt(q.limit.Group)
		}
	}
}

// decide answers all questions of a request.
func (s *Service) decide(asked []question) {
	s.countExempt(asked)
	admitted := s.look(asked)
	switch {
	case s.o.ChargeRefused:
		admitted = s.takeEach(asked) && admitted
	case admitted:
		admitted = s.takeAll(asked)
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
func (s *Service) take(q *question) {
	if q.limit.Rule.Parts() == nil {
		q.res = s.o.Limiter.Take(q.key, q.limit.Rule, int64(q.n))
		return
	}
	v := s.o.Limiter.TakeAll(limit.Check{Key: q.key, Rule: q.limit.Rule, N: int64(q.n)})
	q.res, q.part = v.Result, v.Rule
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

// takeEach takes for each descriptor by itself, and charges reports that do not fit.
func (s *Service) takeEach(asked []question) (admitted bool) {
	admitted = true
	for i := range asked {
		q := &asked[i]
		if !q.takes() {
			continue
		}
		if s.take(q); q.res.Allowed && !q.res.WouldRefuse {
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
	return admitted
}

// takeAll takes for all descriptors or for none.
func (s *Service) takeAll(asked []question) (admitted bool) {
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
		return true
	case 1: // the usual case: one answer has it all
		q := &asked[places[0]]
		s.take(q)
		q.over = !q.res.Allowed
		return !q.over
	}
	all := s.o.Limiter.TakeAll(checks...)
	if !all.Allowed {
		s.describe(asked, places[all.By])
		asked[places[all.By]].res, asked[places[all.By]].part = all.Result, all.Rule
		return false
	}
	for _, i := range places {
		s.peek(&asked[i])
	}
	return true
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
