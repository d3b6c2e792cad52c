package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/limit"
)

var errAway = errors.New("redis is away")

// faulty is a limiter whose calls fail as they are told, and which remembers the last context.
type faulty struct {
	limit.ContextLimiter
	err error
	ctx context.Context
}

func (f *faulty) Take(ctx context.Context, key string, rule *limit.Rule, n int64) (limit.Result, error) {
	if f.ctx = ctx; f.err != nil {
		return limit.Result{}, f.err
	}
	return f.ContextLimiter.Take(ctx, key, rule, n)
}

func (f *faulty) TakeAll(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	if f.ctx = ctx; f.err != nil {
		return limit.AllResult{By: -1}, f.err
	}
	return f.ContextLimiter.TakeAll(ctx, checks...)
}

func (f *faulty) WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error {
	if f.ctx = ctx; f.err != nil {
		return f.err
	}
	return f.ContextLimiter.WaitN(ctx, key, rule, n)
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	lim, _ := alone(t)
	return &faulty{ContextLimiter: limit.WithContext(lim)}
}

// served makes a unary call of a server, without a network.
func served(t *testing.T, ctx context.Context, lim limit.ContextLimiter, opts ...grpclimit.Option) (reached bool, err error) {
	t.Helper()
	intercept, err := grpclimit.UnaryServerInterceptor(lim, bucket("api", 5), grpclimit.Fixed("k"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: sayMethod}, func(context.Context, any) (any, error) {
		reached = true
		return nil, nil
	})
	return reached, err
}

// called makes a unary call of a client, without a network.
func called(t *testing.T, ctx context.Context, lim limit.ContextLimiter, opts ...grpclimit.Option) (reached bool, err error) {
	t.Helper()
	intercept, err := grpclimit.UnaryClientInterceptor(lim, bucket("api", 5), grpclimit.Fixed("k"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	err = intercept(ctx, sayMethod, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		reached = true
		return nil
	})
	return reached, err
}

// A rule that is a dry run refuses nothing, not even while the limiter is unavailable; beside a rule
// that is none it does not help.
func TestDryRulesWhileUnavailable(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []grpclimit.Option
		pass bool
	}{
		{"alone", nil, true},
		{"that waits", []grpclimit.Option{grpclimit.Wait()}, true},
		{"beside another", []grpclimit.Option{grpclimit.And(bucket("all", 5).DryRun(), grpclimit.Fixed("all"))}, true},
		{"beside one that is enforced", []grpclimit.Option{grpclimit.And(bucket("all", 5), grpclimit.Fixed("all"))}, false},
	} {
		lim := newFaulty(t)
		lim.err = errAway
		intercept, err := grpclimit.UnaryClientInterceptor(lim, bucket("api", 5).DryRun(), grpclimit.Fixed("k"),
			append(c.opts, grpclimit.Logger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			t.Fatal(err)
		}
		reached := false
		err = intercept(t.Context(), sayMethod, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			reached = true
			return nil
		})
		if reached != c.pass || (err == nil) != c.pass {
			t.Errorf("%s: %v, made %t", c.name, err, reached)
		}
	}
}

// Which status an error of the limiter gets, whether it is in the log, and whether the call
// passes with FailOpen.
func TestErrorsOfTheLimiter(t *testing.T) {
	type option = grpclimit.Option
	for _, c := range []struct {
		name string
		err  error
		end  func(context.Context) (context.Context, context.CancelFunc)
		code codes.Code
		log  bool
		open bool
	}{
		{"away", errAway, context.WithCancel, codes.Unavailable, true, true},
		{"a time-out of its own", context.DeadlineExceeded, context.WithCancel, codes.Unavailable, true, true},
		{"closed", limit.ErrClosed, context.WithCancel, codes.Unavailable, false, false},
		{"canceled", errAway, canceled, codes.Canceled, false, false},
		{"too late", context.DeadlineExceeded, expired, codes.DeadlineExceeded, false, false},
		{"no rule", limit.ErrNilRule, context.WithCancel, codes.Internal, true, false},
		{"a negative number", limit.ErrInvalidN, context.WithCancel, codes.Internal, true, false},
		{"a broken key", &limit.KeyError{Key: "hl:k", Reason: "WRONGTYPE"}, context.WithCancel, codes.Internal, true, false},
		{"no such rule", limit.ErrUnsupported, canceled, codes.Internal, true, false},
	} {
		for kind, call := range map[string]func(context.Context, limit.ContextLimiter, ...option) (bool, error){
			"server": func(ctx context.Context, lim limit.ContextLimiter, opts ...option) (bool, error) {
				return served(t, ctx, lim, opts...)
			},
			"server, two limits": func(ctx context.Context, lim limit.ContextLimiter, opts ...option) (bool, error) {
				return served(t, ctx, lim, append(opts, grpclimit.And(bucket("all", 5), grpclimit.Fixed("all")))...)
			},
			"client": func(ctx context.Context, lim limit.ContextLimiter, opts ...option) (bool, error) {
				return called(t, ctx, lim, opts...)
			},
			"client that waits": func(ctx context.Context, lim limit.ContextLimiter, opts ...option) (bool, error) {
				return called(t, ctx, lim, append(opts, grpclimit.Wait())...)
			},
		} {
			lim := newFaulty(t)
			lim.err = c.err
			ctx, cancel := c.end(t.Context())
			var text bytes.Buffer
			var told []grpclimit.Decision
			logger := grpclimit.Logger(slog.New(slog.NewTextHandler(&text, nil)))
			observe := grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { told = append(told, d) })
			reached, err := call(ctx, lim, logger, observe)
			if reached || status.Code(err) != c.code || !errors.Is(err, c.err) || lim.ctx != ctx {
				t.Errorf("%s, %s: %v, served %t", c.name, kind, err, reached)
			}
			if s := status.Convert(err); strings.Contains(s.Message(), c.err.Error()) || len(s.Details()) != 0 {
				t.Errorf("%s, %s: the caller is told %v", c.name, kind, s.Proto())
			}
			if got := text.String(); strings.Contains(got, "level=ERROR") != c.log || !c.log && got != "" {
				t.Errorf("%s, %s: the log is %q", c.name, kind, got)
			}
			reached, err = call(ctx, lim, logger, observe, grpclimit.FailOpen())
			if reached != c.open || (err == nil) != c.open {
				t.Errorf("%s, %s, failing open: %v, served %t", c.name, kind, err, reached)
			}
			if len(told) != 2 || !errors.Is(told[1].Err, c.err) || told[1].Rule == nil {
				t.Errorf("%s, %s: told %+v", c.name, kind, told)
			}
			cancel()
		}
	}
}

func canceled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

func expired(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Unix(0, 0))
}

// A stream that was opened while the limiter was away has its messages counted when it is back. Without
// FailOpen a message that cannot be counted ends the stream.
func TestFailOpenOfMessages(t *testing.T) {
	lim := newFaulty(t)
	lim.err = errAway
	intercept, err := grpclimit.StreamServerInterceptor(lim, bucket("streams", 9), grpclimit.Fixed("k"),
		grpclimit.EachMessage(bucket("messages", 2), nil), grpclimit.FailOpen(), grpclimit.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	err = intercept(nil, endless{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: streamMethod}, func(_ any, ss grpc.ServerStream) error {
		for i := range 4 {
			if i == 2 {
				lim.err = nil
			}
			want(t, ss.RecvMsg(nil), codes.OK)
		}
		want(t, ss.RecvMsg(nil), codes.ResourceExhausted)
		return nil
	})
	want(t, err, codes.ResourceExhausted)
	lim = newFaulty(t)
	if intercept, err = grpclimit.StreamServerInterceptor(lim, bucket("streams", 9), grpclimit.Fixed("k"),
		grpclimit.EachMessage(bucket("messages", 2), nil), grpclimit.Logger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	err = intercept(nil, endless{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: streamMethod}, func(_ any, ss grpc.ServerStream) error {
		want(t, ss.RecvMsg(nil), codes.OK)
		lim.err = errAway
		return ss.RecvMsg(nil)
	})
	if status.Code(err) != codes.Unavailable || !errors.Is(err, errAway) {
		t.Error(err)
	}
}

// endless is a stream of messages.
type endless struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endless) Context() context.Context { return s.ctx }
func (s endless) RecvMsg(any) error        { return nil }
