package httptests

import (
	"context"
	"fmt"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// grpcLimiter is a limiter of go-grpc-middleware: of calls by the user that an interceptor before it has
// authenticated.
type grpcLimiter struct{ lim *hybrid.Limiter }

var _ ratelimit.Limiter = grpcLimiter{}

func (g grpcLimiter) Limit(ctx context.Context) error {
	user := metadata.ValueFromIncomingContext(ctx, "user")
	if len(user) != 1 {
		return fmt.Errorf("who are you?") // nobody shares a counter
	}
	if res := g.lim.Take(user[0], perCaller, 1); !res.Allowed {
		return fmt.Errorf("again in %v", res.RetryAfter)
	}
	return nil
}

func Example_grpcMiddleware() {
	lim := shared()
	defer lim.Close()
	intercept := ratelimit.UnaryServerInterceptor(grpcLimiter{lim}) // for grpc.ChainUnaryInterceptor
	for _, user := range []string{"ann", "ann", "ann", "bob", ""} {
		ctx := context.Background()
		if user != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("user", user))
		}
		reply, err := intercept(ctx, "hello", &grpc.UnaryServerInfo{FullMethod: "/s/m"},
			func(_ context.Context, req any) (any, error) { return req, nil })
		fmt.Println(user, reply, status.Code(err), err)
	}
	// Output:
	// ann hello OK <nil>
	// ann hello OK <nil>
	// ann <nil> ResourceExhausted rpc error: code = ResourceExhausted desc = /s/m is rejected by grpc_ratelimit middleware, please retry later. again in 1h0m0s
	// bob hello OK <nil>
	//  <nil> ResourceExhausted rpc error: code = ResourceExhausted desc = /s/m is rejected by grpc_ratelimit middleware, please retry later. who are you?
}
