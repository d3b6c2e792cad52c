package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what must happen at once, on any machine.
const patience = time.Minute

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bucket returns a rule for so many calls, with one more each second.
func bucket(name string, n int64) *limit.Rule {
	return limit.Must(limit.TokenBucket(name, 1, time.Second, n))
}

// alone returns a limiter of this process, and its clock.
func alone(t testing.TB) (*local.Limiter, *clock.Manual) {
	t.Helper()
	now := clock.NewManual(start)
	lim, err := local.New(local.Options{Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim, now
}

// service is the test's own, without protoc. Both calls do what the test says.
type service struct {
	say    func(ctx context.Context, text string) (string, error)
	stream func(ss grpc.ServerStream) error
}

const (
	sayMethod    = "/test.Service/Say"
	streamMethod = "/test.Service/Stream"
)

var (
	bothWays = &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}
	oneReply = &grpc.StreamDesc{StreamName: "Stream", ClientStreams: true}
)

func (s *service) desc() *grpc.ServiceDesc {
	say := func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, req any) (any, error) {
			out, err := s.say(ctx, req.(*wrapperspb.StringValue).GetValue())
			return wrapperspb.String(out), err
		}
		if intercept == nil {
			return handler(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: sayMethod}, handler)
	}
	return &grpc.ServiceDesc{
		ServiceName: "test.Service",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Say", Handler: say}},
		Streams: []grpc.StreamDesc{{
			StreamName: "Stream", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, ss grpc.ServerStream) error { return s.stream(ss) },
		}},
	}
}

// echo answers with what it is told, until there is no more.
func echo() *service {
	return &service{
		say: func(_ context.Context, text string) (string, error) { return text, nil },
		stream: func(ss grpc.ServerStream) error {
			for {
				m := new(wrapperspb.StringValue)
				if err := ss.RecvMsg(m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := ss.SendMsg(m); err != nil {
					return err
				}
			}
		},
	}
}

// failing is a service whose calls all end with one error.
func failing(err error) *service {
	return &service{
		say:    func(context.Context, string) (string, error) { return "", err },
		stream: func(grpc.ServerStream) error { return err },
	}
}

// serve starts a server on a listener, 127.0.0.1 if that is nil, and returns its address.
func serve(t testing.TB, lis net.Listener, s *service, opts ...grpc.ServerOption) string {
	t.Helper()
	if lis == nil {
		var err error
		if lis, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	server := grpc.NewServer(opts...)
	server.RegisterService(s.desc(), s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		// A test that needs no call may stop the server before Serve has run.
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("the server: %v", err)
		}
	})
	return lis.Addr().String()
}

func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// say makes a unary call.
func say(t testing.TB, cc *grpc.ClientConn, text string) error {
	t.Helper()
	return sayIn(t.Context(), cc, text)
}

func sayIn(ctx context.Context, cc *grpc.ClientConn, text string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return cc.Invoke(ctx, sayMethod, wrapperspb.String(text), new(wrapperspb.StringValue))
}

// open opens a stream that ends with the test.
func open(t testing.TB, cc *grpc.ClientConn, desc *grpc.StreamDesc) (grpc.ClientStream, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return cc.NewStream(ctx, desc, streamMethod)
}

// exchange sends a message on a stream and receives one.
func exchange(cs grpc.ClientStream, text string) error {
	if err := cs.SendMsg(wrapperspb.String(text)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return cs.RecvMsg(new(wrapperspb.StringValue)) // the error if SendMsg has said io.EOF
}

// streamed opens a stream, sends nothing, and returns how it ends.
func streamed(t testing.TB, cc *grpc.ClientConn) error {
	t.Helper()
	cs, err := open(t, cc, bothWays)
	if err != nil {
		return err
	}
	if err := cs.CloseSend(); err != nil {
		return err
	}
	if err := cs.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// want checks the code of an error.
func want(t testing.TB, err error, code codes.Code) {
	t.Helper()
	if got := status.Code(err); got != code {
		t.Fatalf("%v: %v, want %v", got, err, code)
	}
}

// detailsOf returns the details of a refusal; nil is one that is not there.
func detailsOf(t testing.TB, err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("a detail %T: %v", d, d)
		}
	}
	return retry, quota
}

// memory is a limiter that answers from memory.
type memory interface {
	Take(key string, rule *limit.Rule, n int64) limit.Result
	TakeAll(checks ...limit.Check) limit.AllResult
	Peek(key string, rule *limit.Rule) limit.Result
	Refund(key string, rule *limit.Rule, n int64) (back int64)
	WaitN(ctx context.Context, key string, rule *limit.Rule, n int64) error
}

// unary makes a server option, and fails the test if there is an error.
func unary(t testing.TB, lim memory, rule *limit.Rule, key grpclimit.KeyFunc, opts ...grpclimit.Option) grpc.ServerOption {
	t.Helper()
	i, err := grpclimit.UnaryServerInterceptor(limit.WithContext(lim), rule, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return grpc.ChainUnaryInterceptor(i)
}

func stream(t testing.TB, lim memory, rule *limit.Rule, key grpclimit.KeyFunc, opts ...grpclimit.Option) grpc.ServerOption {
	t.Helper()
	i, err := grpclimit.StreamServerInterceptor(limit.WithContext(lim), rule, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return grpc.ChainStreamInterceptor(i)
}

// clients makes the options of a client whose calls of both kinds are limited.
func clients(t testing.TB, lim memory, rule *limit.Rule, key grpclimit.KeyFunc, opts ...grpclimit.Option) []grpc.DialOption {
	t.Helper()
	u, err := grpclimit.UnaryClientInterceptor(limit.WithContext(lim), rule, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := grpclimit.StreamClientInterceptor(limit.WithContext(lim), rule, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(u), grpc.WithChainStreamInterceptor(s)}
}
