package rls

import (
	"math"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// status returns the answer for a descriptor. Without a limit it is a bare OK, as
// envoyproxy/ratelimit has it; for what is unlimited, the largest number remains.
func (q *question) status() *ratelimit.RateLimitResponse_DescriptorStatus {
	st := &ratelimit.RateLimitResponse_DescriptorStatus{Code: ratelimit.RateLimitResponse_OK}
	switch {
	case q.limit == nil:
		return st
	case !q.limited():
		st.LimitRemaining = math.MaxUint32
		return st
	case q.over:
		st.Code = ratelimit.RateLimitResponse_OVER_LIMIT
	}
	requests, unit := q.current()
	st.CurrentLimit = &ratelimit.RateLimitResponse_RateLimit{
		Name:            q.limit.Name,
		RequestsPerUnit: requests,
		Unit:            ratelimit.RateLimitResponse_RateLimit_Unit(ratelimit.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(unit)]),
	}
	st.LimitRemaining = uint32(min(q.res.Remaining, math.MaxUint32))
	st.DurationUntilReset = durationpb.New(q.until())
	return st
}

// units are those of Envoy by their length.
var units = map[time.Duration]string{
	time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day", 7 * 24 * time.Hour: "week",
}

// current returns the limit that the answer is about: of several the tightest. A bucket is told by its
// rate. A period that Envoy has no unit for is "".
func (q *question) current() (requests uint32, unit string) {
	part := q.part
	switch {
	case q.limit.Unit != "":
		return q.limit.RequestsPerUnit, q.limit.Unit
	case part == nil:
		part = q.limit.Rule
	}
	n := part.Limit()
	if arith.Of(part).Algorithm == arith.TokenBucket {
		n = arith.Of(part).Units
	}
	if c := arith.Of(part).Calendar; c != nil {
		return uint32(min(n, math.MaxUint32)), c.Unit.String()
	}
	return uint32(min(n, math.MaxUint32)), units[part.Period()]
}

// until returns after which time a request that is refused would be admitted; else after
// which time nothing is counted any more.
func (q *question) until() time.Duration {
	if q.over && q.res.RetryAfter > 0 && q.res.RetryAfter != limit.Never {
		return q.res.RetryAfter
	}
	return q.res.ResetAfter
}

// retryAfter returns after which time none of the limits would refuse any more; 0 if one always
// will.
func retryAfter(asked []question) (longest time.Duration) {
	for i := range asked {
		q := &asked[i]
		switch {
		case !q.over:
		case q.res.RetryAfter == limit.Never:
			return 0
		default:
			longest = max(longest, q.until())
		}
	}
	return longest
}

// headers returns the headers of a response, of the limit that matters: one that refuses,
// else that of which the least is left.
func headers(asked []question) (list []*core.HeaderValue) {
	var tightest *question
	for i := range asked {
		q := &asked[i]
		if q.limited() && (tightest == nil || q.over && !tightest.over || q.over == tightest.over && q.res.Remaining < tightest.res.Remaining) {
			tightest = q
		}
	}
	if tightest == nil {
		return nil
	}
	add := func(name string, v int64) {
		list = append(list, &core.HeaderValue{Key: name, Value: strconv.FormatInt(v, 10)})
	}
	seconds := int64((tightest.until() + time.Second - 1) / time.Second)
	requests, _ := tightest.current()
	add("RateLimit-Limit", int64(requests))
	add("RateLimit-Remaining", tightest.res.Remaining)
	add("RateLimit-Reset", seconds)
	if tightest.over && tightest.res.RetryAfter != limit.Never {
		add("Retry-After", max(1, seconds))
	}
	return list
}
