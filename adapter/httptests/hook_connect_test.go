package httptests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// connectLimit is an interceptor of connect-go for a server: of calls by the user that a middleware before it has
// authenticated.
func connectLimit(lim *hybrid.Limiter) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			user := r.Header().Get("User")
			if user == "" {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("who are you?"))
			}
			res := lim.Take(user, perCaller, 1)
			if res.Allowed {
				return next(ctx, r)
			}
			err := connect.NewError(connect.CodeResourceExhausted, errors.New("rate limit exceeded"))
			if n, ok := res.RetryAfterSeconds(); ok {
				err.Meta().Set("Retry-After", strconv.Itoa(n))
			}
			return nil, err
		}
	}
}

func Example_connect() {
	lim := shared()
	defer lim.Close()
	const procedure = "/s.S/M"
	server := httptest.NewServer(connect.NewUnaryHandler(procedure,
		func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return connect.NewResponse(&emptypb.Empty{}), nil
		}, connect.WithInterceptors(connectLimit(lim))))
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure)
	for _, user := range []string{"ann", "ann", "ann", "bob", ""} {
		r := connect.NewRequest(&emptypb.Empty{})
		r.Header().Set("User", user)
		_, err := client.CallUnary(context.Background(), r)
		retry := "-"
		if bad := new(connect.Error); errors.As(err, &bad) {
			retry = cmp.Or(bad.Meta().Get("Retry-After"), retry)
		}
		fmt.Println(user, err, retry)
	}
	// Output:
	// ann <nil> -
	// ann <nil> -
	// ann resource_exhausted: rate limit exceeded 3600
	// bob <nil> -
	//  invalid_argument: who are you? -
}
