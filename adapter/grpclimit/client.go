package grpclimit

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/hybridlimit/hybridlimit/limit"
)

// UnaryClientInterceptor returns an interceptor that refuses unary calls above rule before
// they are sent, counted under the key that key returns; with [Wait] it delays them. It
// returns an error, and never an interceptor that lets all calls pass, if one of them is nil or
// an option cannot be used.
func UnaryClientInterceptor(lim limit.ContextLimiter, rule *limit.Rule, key KeyFunc, opts ...Option) (grpc.UnaryClientInterceptor, error) {
	g, err := newGate(true, lim, rule, key, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		call := Call{Method: method, Target: targetOf(cc), Request: req}
		took, err := g.admit(ctx, call)
		if err != nil {
			return err
		}
		ctx, c := g.begin(ctx, call, took)
		err = invoker(ctx, method, req, reply, cc, opts...)
		g.endedAtClient(ctx, c, reply, err)
		return err
	}, nil
}

// StreamClientInterceptor is [UnaryClientInterceptor] for streams: what is counted is
// opening them. What a server says as a stream ends is heard when the caller's RecvMsg
// returns it.
func StreamClientInterceptor(lim limit.ContextLimiter, rule *limit.Rule, key KeyFunc, opts ...Option) (grpc.StreamClientInterceptor, error) {
	g, err := newGate(true, lim, rule, key, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		call := Call{Method: method, Target: targetOf(cc), Stream: true}
		took, err := g.admit(ctx, call)
		if err != nil {
			return nil, err
		}
		ctx, c := g.begin(ctx, call, took)
		cs, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			g.endedAtClient(ctx, c, nil, err)
			return nil, err
		}
		if g.follower == nil && g.refunds == nil && g.settle == nil {
			return cs, nil
		}
		ended := func(reply any, err error) { g.endedAtClient(ctx, c, reply, err) }
		return &watchedStream{ClientStream: cs, oneReply: !desc.ServerStreams, ended: ended}, nil
	}, nil
}

func targetOf(cc *grpc.ClientConn) string {
	if cc == nil {
		return ""
	}
	return cc.Target()
}

// endedAtClient books what a call has cost and follows the server. In this order: the units
// handed back must not be those that make the pause.
func (g *gate) endedAtClient(ctx context.Context, c course, reply any, err error) {
	g.ended(ctx, c, reply, err)
	took := c.took
	if g.follower == nil || err == nil || len(took.checks) == 0 || g.dry {
		return
	}
	if err := g.follower.heed(ctx, took.checks[0], err); err != nil && g.observer != nil {
		g.observer(ctx, Decision{Call: c.call, Rule: took.checks[0].Rule, Err: err})
	}
}

// watchedStream notices how a stream ends.
type watchedStream struct {
	grpc.ClientStream
	oneReply bool // the first reply is the end
	once     sync.Once
	ended    func(reply any, err error)
}

// RecvMsg receives a message, or learns how the stream has ended.
func (s *watchedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case errors.Is(err, io.EOF):
		s.once.Do(func() { s.ended(nil, nil) })
	case err != nil:
		s.once.Do(func() { s.ended(nil, err) })
	case s.oneReply:
		s.once.Do(func() { s.ended(m, nil) })
	}
	return err
}
