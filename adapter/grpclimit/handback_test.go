package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Somebody logs in 24 times with the right password, under a limit of five failures an hour, by each
// algorithm, exact or not: all log-ins are admitted, and then five wrong passwords. The units are handed
// back because Settle says that the call has cost nothing, or by RefundOn, which here is for wrong ones.
//
// Fault 107: units that an interceptor hands back.
func TestHandedBack(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	lim := limit.WithContext(h.Limiter)
	wrong := status.Error(codes.Unauthenticated, "wrong password")
	for name, rule := range map[string]*limit.Rule{
		"bucket": limit.Must(limit.Funnel("bucket", 5, 5, time.Hour)), "sliding": limit.Must(limit.SlidingWindow("sliding", 5, time.Hour)),
		"fixed": limit.Must(limit.FixedWindow("fixed", 5, time.Hour)), "quota": limit.Must(limit.Quota("quota", 5, limit.Calendar{Unit: limit.Day})),
	} {
		for _, rule := range []*limit.Rule{rule, rule.Exact()} {
			for how, c := range map[string]struct {
				option grpclimit.Option
				free   error // what costs nothing
				paid   error
			}{
				"Settle": {grpclimit.Settle(func(_ context.Context, _ grpclimit.Call, end grpclimit.End) int64 {
					if end.Err == nil {
						return 0
					}
					return end.Taken
				}), nil, wrong},
				"RefundOn": {grpclimit.RefundOn(codes.Unauthenticated), wrong, nil},
			} {
				key := limit.JoinKey(how, name, rule.String())
				u, err := grpclimit.UnaryServerInterceptor(lim, rule, grpclimit.Fixed(key), c.option)
				if err != nil {
					t.Fatal(err)
				}
				call := func(ends error) codes.Code {
					_, err := u(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, ends })
					return status.Code(err)
				}
				for i := range 24 {
					if code := call(c.free); code != status.Code(c.free) {
						t.Errorf("%s: call %d that costs nothing: %v", key, i, code)
					}
				}
				for i := range 6 {
					want := status.Code(c.paid)
					if i == 5 {
						want = codes.ResourceExhausted
					}
					if code := call(c.paid); code != want {
						t.Errorf("%s: call %d that counts: %v, want %v", key, i, code, want)
					}
				}
			}
		}
	}
	if s := h.Limiter.Stats(); s.UnreturnedUnits != 0 {
		t.Errorf("%d units are not given back", s.UnreturnedUnits)
	}
}
