package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// The interceptor is called here as grpc.NewServer(grpc.ChainUnaryInterceptor(intercept)) has it
// called.
func ExampleUnaryServerInterceptor() {
	lim := limit.Must(local.New(local.Options{})) // hybrid.New shares the limits of a fleet
	defer lim.Close()
	perMethod := limit.Must(limit.TokenBucket("per method", 1, time.Hour, 2))
	intercept, err := grpclimit.UnaryServerInterceptor(limit.WithContext(lim), perMethod, grpclimit.ByMethod())
	if err != nil {
		panic(err)
	}
	handler := func(context.Context, any) (any, error) { return "hello", nil }
	for range 3 {
		reply, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/greeter/Hello"}, handler)
		if err != nil {
			fmt.Println(status.Code(err), "-", status.Convert(err).Message())
			continue
		}
		fmt.Println(reply)
	}
	// Output:
	// hello
	// hello
	// ResourceExhausted - rate limit exceeded: policy "per method"
}

// A call that the client's own limit refuses is not sent.
func ExampleUnaryClientInterceptor() {
	lim := limit.Must(local.New(local.Options{}))
	defer lim.Close()
	upstream := limit.Must(limit.TokenBucket("upstream", 1, time.Hour, 1))
	intercept, err := grpclimit.UnaryClientInterceptor(limit.WithContext(lim), upstream, grpclimit.ByTarget(),
		grpclimit.RefundOn(codes.Unavailable), grpclimit.FollowRetryInfo(time.Minute))
	if err != nil {
		panic(err)
	}
	cc, err := grpc.NewClient("passthrough:///upstream", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(
		intercept,
		func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			fmt.Println("sent") // in place of a server
			return nil
		}))
	if err != nil {
		panic(err)
	}
	defer cc.Close()
	for range 2 {
		err := cc.Invoke(context.Background(), "/greeter/Hello", nil, nil)
		var refused *grpclimit.RefusedError
		if errors.As(err, &refused) {
			fmt.Println("not sent: again in", refused.Result.RetryAfter.Round(time.Hour))
		}
	}
	// Output:
	// sent
	// not sent: again in 1h0m0s
}

// While the limiter returns errors, as one of package remote does while Redis is away, calls
// pass.
func ExampleFailOpen() {
	lim := unreachable{} // in place of a *remote.Limiter
	rule := limit.Must(limit.PerMinute("api", 100))
	observe := grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { fmt.Println(status.Code(d.Err)) })
	quiet := grpclimit.Logger(slog.New(slog.DiscardHandler)) // one line in 10 s, otherwise
	intercept, err := grpclimit.UnaryServerInterceptor(lim, rule, grpclimit.ByMethod(), grpclimit.FailOpen(), observe, quiet)
	if err != nil {
		panic(err)
	}
	reply, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/greeter/Hello"},
		func(context.Context, any) (any, error) { return "hello", nil })
	fmt.Println(reply, err)
	// Output:
	// Unavailable
	// hello <nil>
}

type unreachable struct{ limit.ContextLimiter }

func (unreachable) Take(context.Context, string, *limit.Rule, int64) (limit.Result, error) {
	return limit.Result{}, errors.New("connection refused")
}
