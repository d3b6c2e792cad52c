package rls

import (
	"context"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

const exactRules = `
rules:
  login: {algorithm: sliding-window, limit: 5, per: 1m, exact: true}
  trial: {algorithm: sliding-window, limit: 5, per: 1m, exact: true, dry_run: true}
---
domain: d
descriptors:
  - {key: account, rate_limit: {unit: minute, requests_per_unit: 5, exact: true}}
  - {key: address, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: several, rate_limit: {limits: "4/m, 9/h", exact: true}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2, exact: true}}
`

// remote is a limiter that notes what Redis would be asked. It decides by itself, or fails.
type remote struct {
	*hybrid.Limiter
	asked [][]limit.Check
	fail  error
}

func (r *remote) TakeExact(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	r.asked = append(r.asked, append([]limit.Check(nil), checks...))
	if err := ctx.Err(); err != nil {
		return limit.AllResult{By: -1}, err
	}
	if r.fail != nil {
		return limit.AllResult{By: -1}, r.fail
	}
	return r.TakeAll(checks...), nil
}

// decider returns a service whose limiter is a remote.
func decider(t *testing.T, o Options) (*Service, *remote) {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(exactRules))
	if err != nil {
		t.Fatal(err)
	}
	lim := &remote{Limiter: limit.Must(hybrid.New(nil, hybrid.Options{Clock: clock.NewManual(start)}))}
	t.Cleanup(func() { lim.Close() })
	o.Limiter, o.Rules = lim, func() *rules.Set { return set }
	return limit.Must(New(o)), lim
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func looking(text string) *common.RateLimitDescriptor {
	desc := d(text)
	desc.HitsAddend = wrapperspb.UInt64(0)
	return desc
}

func back(text string) *common.RateLimitDescriptor {
	desc := d(text)
	desc.IsNegativeHits = true
	return desc
}

// Redis is asked about exact limits, about all limits of a request at once, and about nothing else.
func TestExact(t *testing.T) {
	s, lim := decider(t, Options{})
	for _, c := range []struct {
		ask   []*common.RateLimitDescriptor
		asked int // checks of one call; 0: none is made
		want  string
	}{
		{[]*common.RateLimitDescriptor{d("account=a")}, 1, "OK | OK 5/MINUTE 4 60s"},
		{[]*common.RateLimitDescriptor{d("address=a")}, 0, "OK | OK 3/MINUTE 2 60s"},
		{[]*common.RateLimitDescriptor{d("account=a"), d("address=a")}, 2, "OK | OK 5/MINUTE 3 60s | OK 3/MINUTE 1 60s"},
		{[]*common.RateLimitDescriptor{d("several=a")}, 1, "OK | OK 4/MINUTE 3 60s"},
		{[]*common.RateLimitDescriptor{looking("account=a")}, 0, "OK | OK 5/MINUTE 3 60s"},
		{[]*common.RateLimitDescriptor{back("account=a")}, 0, "OK | OK 5/MINUTE 4 60s"},
		{[]*common.RateLimitDescriptor{d("other=a")}, 0, "OK | OK 0"},
		{[]*common.RateLimitDescriptor{d("trial=a")}, 1, "OK | OK 2/MINUTE 1 60s"},
	} {
		lim.asked = nil
		res, err := s.ShouldRateLimit(t.Context(), request("d", c.ask...))
		if got := line(res); err != nil || got != c.want {
			t.Errorf("%v: %s, %v, want\n%s", c.ask, got, err, c.want)
		}
		if c.asked == 0 && len(lim.asked) > 0 || c.asked > 0 && (len(lim.asked) != 1 || len(lim.asked[0]) != c.asked) {
			t.Errorf("%v: asked %v, want %d checks", c.ask, lim.asked, c.asked)
		}
	}
}

// What Redis does not decide is an error, so that failure_mode_deny decides. A request that only dry runs
// limit, and all with Shadow, are answered from memory.
func TestExactUndecided(t *testing.T) {
	away := &hybrid.UnavailableError{Reason: "refused"}
	both := []*common.RateLimitDescriptor{d("address=a"), d("account=a")}
	for _, c := range []struct {
		o    Options
		fail error
		ctx  context.Context
		ask  []*common.RateLimitDescriptor
		code codes.Code
	}{
		{Options{}, away, t.Context(), both[1:], codes.Unavailable},
		{Options{}, away, t.Context(), both, codes.Unavailable},
		{Options{}, &limit.KeyError{}, t.Context(), both, codes.Unavailable},
		{Options{}, limit.ErrClosed, t.Context(), both, codes.Unavailable},
		{Options{}, limit.ErrUnsupported, t.Context(), both, codes.Unimplemented},
		{Options{}, nil, ended(t), both, codes.Canceled},
		{Options{}, context.DeadlineExceeded, t.Context(), both, codes.DeadlineExceeded},
		{Options{}, away, t.Context(), []*common.RateLimitDescriptor{d("several=a")}, codes.Unavailable},
		{Options{}, away, t.Context(), []*common.RateLimitDescriptor{d("trial=a")}, codes.OK},
		{Options{}, away, t.Context(), []*common.RateLimitDescriptor{d("trial=a"), d("trial=b")}, codes.OK},
		{Options{}, away, t.Context(), []*common.RateLimitDescriptor{d("trial=a"), d("account=a")}, codes.Unavailable},
		{Options{}, away, t.Context(), []*common.RateLimitDescriptor{d("trial=a"), d("address=a")}, codes.Unavailable},
		{Options{}, away, t.Context(), both[:1], codes.OK},
		{Options{ChargeRefused: true}, away, t.Context(), both, codes.Unavailable},
		{Options{ChargeRefused: true}, away, t.Context(), []*common.RateLimitDescriptor{d("trial=a")}, codes.OK},
		{Options{Shadow: true}, away, t.Context(), both, codes.OK},
		{Options{Shadow: true, ChargeRefused: true}, away, t.Context(), both, codes.OK},
	} {
		s, lim := decider(t, c.o)
		lim.fail = c.fail
		res, err := s.ShouldRateLimit(c.ctx, request("d", c.ask...))
		if status.Code(err) != c.code || (res == nil) != (c.code != codes.OK) {
			t.Errorf("%+v, %v, %v: %v, %v", c.o, c.fail, c.ask, res, err)
		}
		failed := uint64(0)
		if c.code != codes.OK {
			failed = 1
		}
		if got := s.Stats(); got.Undecided != failed || got.Requests+got.Undecided != 1 || got.Invalid != 0 {
			t.Errorf("%+v, %v: %+v", c.o, c.ask, got)
		}
	}
}

// Descriptors that count by themselves do so also if Redis does not decide one of them. That one is not
// charged: it may have been taken.
func TestExactChargedEach(t *testing.T) {
	s, lim := decider(t, Options{ChargeRefused: true})
	lim.fail = &hybrid.UnavailableError{Reason: "timeout"}
	req := request("d", d("account=a"), d("address=a"), back("address=b"))
	req.HitsAddend = 2
	if _, err := s.ShouldRateLimit(t.Context(), req); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	lim.fail = nil
	res, err := s.ShouldRateLimit(t.Context(), request("d", looking("account=a"), looking("address=a")))
	if want := "OK | OK 5/MINUTE 5 0s | OK 3/MINUTE 1 60s"; err != nil || line(res) != want {
		t.Errorf("%s, %v, want %s", line(res), err, want)
	}
	req = request("d", d("account=a"))
	req.HitsAddend = 9
	if res, err := s.ShouldRateLimit(t.Context(), req); err != nil || line(res) != "OVER_LIMIT | OVER_LIMIT 5/MINUTE 0 60s" {
		t.Errorf("a report above the limit: %s, %v", line(res), err)
	}
}

// By the name of a rule: taking asks Redis, looking does not, and a dry run refuses nothing.
func TestExactByName(t *testing.T) {
	s, lim := decider(t, Options{})
	if res, err := s.Ask(t.Context(), "login", "k", 5); err != nil || !res.Allowed || len(lim.asked) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	lim.fail = &hybrid.UnavailableError{Reason: "timeout"}
	if res, err := s.Ask(t.Context(), "login", "k", 0); err != nil || res.Allowed || len(lim.asked) != 1 {
		t.Errorf("a look: %+v, %v", res, err)
	}
	const says = "rls: the limit is exact, and Redis has not decided (timeout): the units may have been taken"
	if res, err := s.Ask(t.Context(), "login", "k", 1); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != says || res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := s.Ask(t.Context(), "trial", "k", 1); err != nil || !res.Allowed {
		t.Errorf("a dry run: %+v, %v", res, err)
	}
	if res, err := s.Charge("login", "k", -5); err != nil || res.Remaining != 5 {
		t.Errorf("%+v, %v", res, err)
	}
	if got := s.Stats(); got.Undecided != 1 || got.Requests != 4 {
		t.Errorf("%+v", got)
	}
}
