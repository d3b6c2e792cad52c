package grpclimit_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Calls that cannot be decided are in the log, a line a while, and counted as invalid.
func TestUndecidedIsLoggedAndCounted(t *testing.T) {
	var text bytes.Buffer
	lim := hybridtest.New(t, hybridtest.Options{}).Limiter
	logged := grpclimit.Logger(slog.New(slog.NewTextHandler(&text, nil)))
	calls := func(want codes.Code, line string, key grpclimit.KeyFunc, opts ...grpclimit.Option) {
		t.Helper()
		defer text.Reset()
		was := inside.Of(lim).Figures().Invalid
		intercept, err := grpclimit.UnaryServerInterceptor(limit.WithContext(lim), bucket("r", 5), key, append(opts, logged)...)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, err := intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: sayMethod}, func(context.Context, any) (any, error) { return nil, nil })
			if got := status.Code(err); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		}
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, line) {
			t.Errorf("the log is %q", got)
		}
		if n := inside.Of(lim).Figures().Invalid - was; n != 3 {
			t.Errorf("%d invalid checks, want 3", n)
		}
	}
	calls(codes.InvalidArgument, "level=WARN", grpclimit.ByMetadata("user"))
	calls(codes.Internal, "level=ERROR", grpclimit.Fixed("k"), grpclimit.Cost(func(context.Context, grpclimit.Call) int64 { return -1 }))
}

// A call that its plan exempts is counted as such, under the rule that it is exempt from.
func TestExemptIsCounted(t *testing.T) {
	lim := hybridtest.New(t, hybridtest.Options{}).Limiter
	health := grpclimit.Plan(func(_ context.Context, call grpclimit.Call) *limit.Rule {
		if call.Method == "/grpc.health.v1.Health/Check" {
			return limit.Unlimited()
		}
		return nil
	})
	intercept, err := grpclimit.UnaryServerInterceptor(limit.WithContext(lim), bucket("r", 5), grpclimit.Fixed("k"), health)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/check", "//grpc.health.v1.Health/Check"} {
		if _, err := intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
	}
	if s := inside.Of(lim).Figures(); s.Exempt != 2 || s.AdmittedUnits != 2 || len(s.Rules) != 1 || s.Rules[0].Name != "r" {
		t.Errorf("%d exempt, %d admitted, %+v", s.Exempt, s.AdmittedUnits, s.Rules)
	}
}
