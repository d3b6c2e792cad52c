package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/limit"
)

// UnaryServerInterceptor returns an interceptor that refuses unary calls above rule,
// counted under the key that key returns. It returns an error, and never an interceptor that
// lets all calls pass, if one of them is nil or an option cannot be used.
func UnaryServerInterceptor(lim limit.ContextLimiter, rule *limit.Rule, key KeyFunc, opts ...Option) (grpc.UnaryServerInterceptor, error) {
	g, err := newGate(false, lim, rule, key, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		call := Call{Method: info.FullMethod, Request: req}
		took, err := g.admit(ctx, call)
		if err != nil {
			return nil, err
		}
		ctx, c := g.begin(ctx, call, took)
		err = errPanicked // unless the handler returns
		defer func() { g.ended(ctx, c, reply, err) }()
		return handler(ctx, req)
	}, nil
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams: it refuses to open
// them, and with [EachMessage] it refuses messages.
func StreamServerInterceptor(lim limit.ContextLimiter, rule *limit.Rule, key KeyFunc, opts ...Option) (grpc.StreamServerInterceptor, error) {
	g, err := newGate(false, lim, rule, key, opts)
	if err != nil {
		return nil, err
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		call := Call{Method: info.FullMethod, Stream: true}
		took, err := g.admit(ss.Context(), call)
		if err != nil {
			return err
		}
		ctx, c := g.begin(ss.Context(), call, took)
		if c.meter != nil {
			ss = &meteredStream{ss, ctx}
		}
		err = errPanicked // unless the handler returns
		defer func() { g.ended(ctx, c, nil, err) }()
		if g.message == nil {
			return handler(srv, ss)
		}
		return g.countMessages(srv, ss, call, took, handler)
	}, nil
}
