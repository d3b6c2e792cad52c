package grpclimit_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// ledger is a limiter that remembers what was booked, and fails if it is told to.
type ledger struct {
	limit.ContextLimiter
	err error

	mu      sync.Mutex
	booked  []string // "charge k 3"
	ctx     context.Context
	invalid int
}

func newLedger(lim memory) *ledger { return &ledger{ContextLimiter: limit.WithContext(lim)} }

func (l *ledger) note(ctx context.Context, what, key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.booked = ctx, append(l.booked, fmt.Sprint(what, " ", key, " ", n))
}

// wrote returns what was booked, and forgets it.
func (l *ledger) wrote() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := fmt.Sprint(l.booked)
	l.booked = nil
	return s
}

func (l *ledger) Refund(ctx context.Context, key string, rule *limit.Rule, n int64) (int64, error) {
	if l.note(ctx, "refund", key, n); l.err != nil {
		return 0, l.err
	}
	return l.ContextLimiter.Refund(ctx, key, rule, n)
}

func (l *ledger) Charge(ctx context.Context, key string, rule *limit.Rule, n int64) (int64, error) {
	if l.note(ctx, "charge", key, n); l.err != nil {
		return 0, l.err
	}
	return l.ContextLimiter.Charge(ctx, key, rule, n)
}

// Inside makes the limiter count what is invalid, as one of package hybrid does.
func (l *ledger) Inside(inside.Key) inside.View { return insideOf{l: l} }

type insideOf struct {
	inside.View
	l *ledger
}

func (c insideOf) CountInvalid(*limit.Rule) { c.l.invalid++ }

func (insideOf) CountExempt(string) {}

// estimate says what each call may cost.
func estimate(n int64) grpclimit.Option {
	return grpclimit.Cost(func(context.Context, grpclimit.Call) int64 { return n })
}

var byCount = grpclimit.Settle(func(_ context.Context, _ grpclimit.Call, end grpclimit.End) int64 { return end.Counted })

// all makes the interceptors of a server.
func all(t *testing.T, lim limit.ContextLimiter, rule *limit.Rule, opts ...grpclimit.Option) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	t.Helper()
	u, err := grpclimit.UnaryServerInterceptor(lim, rule, grpclimit.Fixed("k"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := grpclimit.StreamServerInterceptor(lim, rule, grpclimit.Fixed("k"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return u, s
}

// fakeStream is a server's stream without a network.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s fakeStream) Context() context.Context { return s.ctx }

// What a call has cost is what counts in the end, whatever the estimate was and however it ends.
// What a goroutine counts after that is not booked, and the log says so.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		cost   int64
		booked string
		left   int64 // of 100
	}{
		"more": {25, "[charge k 15]", 75}, "fewer": {4, "[refund k 6]", 96}, "as many": {10, "[]", 90}, "nothing": {0, "[refund k 10]", 100},
		"more than the limit": {150, "[charge k 140]", 0}, "the most": {math.MaxInt64, fmt.Sprintf("[charge k %d]", int64(math.MaxInt64-10)), 0},
	} {
		for _, how := range []string{"returns", "fails", "panics", "has lost its caller"} {
			for _, streamed := range []bool{false, true} {
				lim, _ := alone(t)
				l, rule := newLedger(lim), bucket("tokens", 100)
				var end grpclimit.End
				var kept context.Context
				var text bytes.Buffer
				u, s := all(t, l, rule, estimate(10), grpclimit.Logger(slog.New(slog.NewTextHandler(&text, nil))), grpclimit.Settle(func(_ context.Context, call grpclimit.Call, e grpclimit.End) int64 {
					if end = e; call.Stream != streamed || call.Method == "" {
						t.Errorf("%+v", call)
					}
					return e.Counted
				}))
				ctx, leave := context.WithCancel(t.Context())
				handler := func(ctx context.Context) error {
					kept = ctx
					grpclimit.Count(ctx, c.cost/2)
					grpclimit.Count(ctx, c.cost-c.cost/2)
					switch how {
					case "fails":
						return status.Error(codes.NotFound, "")
					case "panics":
						panic("on purpose")
					case "has lost its caller":
						leave()
						return ctx.Err()
					}
					return nil
				}
				func() {
					defer func() { _ = recover() }()
					if streamed {
						_ = s(nil, fakeStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a/B"}, func(_ any, ss grpc.ServerStream) error { return handler(ss.Context()) })
						return
					}
					_, _ = u(ctx, "request", &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(ctx context.Context, _ any) (any, error) { return "reply", handler(ctx) })
				}()
				leave()
				grpclimit.Count(kept, 4)
				if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "4 units were counted after the call had ended") {
					t.Errorf("%s, the handler %s: the log is %q", name, how, got)
				}
				if left := lim.Peek("k", rule).Remaining; left != c.left || l.wrote() != c.booked || l.ctx != nil && l.ctx.Err() != nil {
					t.Errorf("%s, the handler %s: %d left", name, how, left)
				}
				code := map[string]codes.Code{"fails": codes.NotFound, "panics": codes.Internal, "has lost its caller": codes.Canceled}[how]
				if got := status.FromContextError(end.Err).Code(); how == "has lost its caller" && got != code || how != "has lost its caller" && status.Code(end.Err) != code {
					t.Errorf("%s, the handler %s: it has ended with %v", name, how, end.Err)
				}
				if reply := end.Reply != nil; reply != (how == "returns" && !streamed) || end.Taken != 10 {
					t.Errorf("%s, the handler %s: %+v", name, how, end)
				}
			}
		}
	}
}

// tokens settles by the length of the reply.
func tokens(_ context.Context, _ grpclimit.Call, end grpclimit.End) int64 {
	if m, ok := end.Reply.(*wrapperspb.StringValue); ok {
		return int64(len(m.GetValue()))
	}
	return end.Counted
}

// Over a network: the reply of a unary call is seen on both sides, a stream is settled by what was
// counted, on a client when it has heard the end, and once.
func TestSettleOverANetwork(t *testing.T) {
	a, _ := alone(t)
	b, _ := alone(t)
	server, client, rule := newLedger(a), newLedger(b), bucket("tokens", 100)
	u, s := all(t, server, rule, estimate(10), grpclimit.Settle(tokens))
	// echo in words, that are counted
	counting := &service{say: echo().say, stream: func(ss grpc.ServerStream) error {
		for {
			m := new(wrapperspb.StringValue)
			if err := ss.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			grpclimit.Count(ss.Context(), 4)
			if err := ss.SendMsg(m); err != nil {
				return err
			}
		}
	}}
	addr := serve(t, nil, counting, grpc.ChainUnaryInterceptor(u), grpc.ChainStreamInterceptor(s, func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handler(srv, ss)
	}))
	cu, err := grpclimit.UnaryClientInterceptor(client, rule, grpclimit.Fixed("c"), estimate(10), grpclimit.Settle(tokens))
	if err != nil {
		t.Fatal(err)
	}
	cst, err := grpclimit.StreamClientInterceptor(client, rule, grpclimit.Fixed("c"), estimate(10), grpclimit.Settle(tokens))
	if err != nil {
		t.Fatal(err)
	}
	cc := dial(t, addr, grpc.WithChainUnaryInterceptor(cu), grpc.WithChainStreamInterceptor(cst))
	want(t, say(t, cc, "twelve bytes"), codes.OK)
	if s, c := server.wrote(), client.wrote(); s != "[charge k 2]" || c != "[charge c 2]" {
		t.Errorf("a unary call: %s at the server, %s at the client", s, c)
	}

	cs, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		want(t, exchange(cs, "word"), codes.OK)
		grpclimit.Count(cs.Context(), 7)
	}
	if c := client.wrote(); c != "[]" {
		t.Errorf("%s before the end of the stream", c)
	}
	if err := cs.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_ = cs.RecvMsg(new(wrapperspb.StringValue))
	}
	if c := client.wrote(); c != "[charge c 11]" {
		t.Errorf("a stream: %s at the client", c)
	}
	eventually(t, "the server has settled", func() bool { return a.Peek("k", rule).Remaining == 100-12-12 })
	server.wrote()

	// The only reply of a stream is its end.
	if cs, err = open(t, cc, oneReply); err != nil {
		t.Fatal(err)
	}
	if err := cs.SendMsg(wrapperspb.String("sixteen of bytes")); err != nil {
		t.Fatal(err)
	}
	if err := cs.CloseSend(); err != nil {
		t.Fatal(err)
	}
	want(t, cs.RecvMsg(new(wrapperspb.StringValue)), codes.OK)
	if c := client.wrote(); c != "[charge c 6]" {
		t.Errorf("a stream with one reply: %s at the client", c)
	}

	// A stream that does not open.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cc.NewStream(ctx, bothWays, streamMethod); err == nil || client.wrote() != "[refund c 10]" {
		t.Errorf("%v", err)
	}
}

// What is refused, unlimited, handed back or would have been refused is not settled.
func TestSettleNothing(t *testing.T) {
	never := grpclimit.Settle(func(context.Context, grpclimit.Call, grpclimit.End) int64 { t.Error("settled"); return 5 })
	full := func(lim memory) { lim.Take("k", bucket("api", 5), 5) }
	for name, c := range map[string]struct {
		opts   []grpclimit.Option
		before func(memory)
		booked string
	}{
		"refused":   {nil, full, "[]"},
		"a dry run": {[]grpclimit.Option{grpclimit.DryRun()}, full, "[]"},
		"unlimited": {[]grpclimit.Option{grpclimit.Plan(func(context.Context, grpclimit.Call) *limit.Rule { return limit.Unlimited() })}, full, "[]"},
		"refunded":  {[]grpclimit.Option{grpclimit.RefundOn(codes.OK)}, func(memory) {}, "[refund k 1]"},
	} {
		lim, _ := alone(t)
		c.before(lim)
		l := newLedger(lim)
		u, s := all(t, l, bucket("api", 5), append(c.opts, never)...)
		_, _ = u(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
		if got := l.wrote(); got != c.booked {
			t.Errorf("%s: booked %s", name, got)
		}
		_ = s(nil, fakeStream{ctx: t.Context()}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { return nil })
		if got := l.wrote(); got != c.booked {
			t.Errorf("a stream, %s: booked %s", name, got)
		}
	}
	// A call that passes because the limiter is away has taken nothing, and hands nothing back of others.
	away := newFaulty(t)
	if _, err := away.Take(t.Context(), "k", bucket("api", 5), 4); err != nil {
		t.Fatal(err)
	}
	away.err = errAway
	for _, o := range []grpclimit.Option{never, grpclimit.RefundOn(codes.OK)} {
		if reached, err := served(t, t.Context(), away, o, grpclimit.FailOpen(), grpclimit.Logger(slog.New(slog.DiscardHandler))); !reached || err != nil {
			t.Errorf("%t, %v", reached, err)
		}
	}
	if res, err := away.Peek(t.Context(), "k", bucket("api", 5)); err != nil || res.Remaining != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	// A handler that has panicked hands nothing back, also if its code does.
	lim, _ := alone(t)
	l := newLedger(lim)
	u, _ := all(t, l, bucket("api", 5), grpclimit.RefundOn(codes.Internal))
	func() {
		defer func() { _ = recover() }()
		_, _ = u(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("on purpose") })
	}()
	if got := l.wrote(); got != "[]" {
		t.Errorf("a panic: booked %s", got)
	}
}

// The cost is that of each rule. A dry run among them is settled as long as it would admit.
func TestSettleSeveralRules(t *testing.T) {
	lim, _ := alone(t)
	l := newLedger(lim)
	opts := []grpclimit.Option{byCount, estimate(3), grpclimit.And(bucket("tenant", 100), grpclimit.Fixed("t")), grpclimit.And(bucket("new", 4).DryRun(), grpclimit.Fixed("d"))}
	u, _ := all(t, l, bucket("user", 100), opts...)
	for _, want := range []string{"[charge k 2 charge t 2 charge d 2]", "[charge k 2 charge t 2]"} {
		_, err := u(t.Context(), nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) { grpclimit.Count(ctx, 5); return nil, nil })
		if got := l.wrote(); err != nil || got != want {
			t.Errorf("%v, booked %s, want %s", err, got, want)
		}
	}
}

// A negative cost books nothing. That and an error of the limiter are in the log, a line a while, and
// no call fails for it; the same goes for units that are handed back.
func TestSettleFails(t *testing.T) {
	cost := func(n int64) grpclimit.Option {
		return grpclimit.Settle(func(context.Context, grpclimit.Call, grpclimit.End) int64 { return n })
	}
	answer := func(context.Context, any) (any, error) { return "reply", nil }
	const settled, back = "a cost cannot be settled", "units cannot be handed back"
	for name, c := range map[string]struct {
		opt     grpclimit.Option
		err     error
		booked  string
		invalid int
		text    string
	}{
		"negative":     {cost(-1), nil, "[]", 3, settled},
		"charge fails": {cost(3), errAway, "[charge k 2 charge k 2 charge k 2]", 0, settled},
		"refund fails": {cost(0), errAway, "[refund k 1 refund k 1 refund k 1]", 0, settled},
		"handed back":  {grpclimit.RefundOn(codes.OK), errAway, "[refund k 1 refund k 1 refund k 1]", 0, back},
	} {
		var text bytes.Buffer
		lim, _ := alone(t)
		l := newLedger(lim)
		l.err = c.err
		u, _ := all(t, l, bucket("api", 10), c.opt, grpclimit.Logger(slog.New(slog.NewTextHandler(&text, nil))))
		for range 3 {
			reply, err := u(t.Context(), nil, &grpc.UnaryServerInfo{}, answer)
			if err != nil || reply != "reply" {
				t.Errorf("%s: %v, %v", name, reply, err)
			}
		}
		if got, left := l.wrote(), lim.Peek("k", bucket("api", 10)).Remaining; got != c.booked || l.invalid != c.invalid || left != 7 {
			t.Errorf("%s: booked %s, %d invalid, %d left", name, got, l.invalid, left)
		}
		got, why := text.String(), cmp.Or(c.err, error(limit.ErrInvalidN)).Error()
		if c.text == settled && strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") ||
			!strings.Contains(got, c.text) || !strings.Contains(got, why) {
			t.Errorf("%s: the log is %q", name, got)
		}
	}
}
