package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/limit"
)

// as adds metadata to the calls of a client.
func as(ctx context.Context, user string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "user", user)
}

func TestRefusal(t *testing.T) {
	lim, now := alone(t)
	rule := bucket("per user", 2)
	cc := dial(t, serve(t, nil, echo(), unary(t, lim, rule, grpclimit.ByMetadata("user")), stream(t, lim, rule, grpclimit.ByMetadata("user"))))
	alice := as(t.Context(), "alice")
	want(t, sayIn(alice, cc, "a"), codes.OK)
	now.Advance(300 * time.Millisecond)
	want(t, sayIn(alice, cc, "b"), codes.OK)
	err := sayIn(alice, cc, "c")
	want(t, err, codes.ResourceExhausted)
	if got := status.Convert(err).Message(); got != `rate limit exceeded: policy "per user"` {
		t.Errorf("message %q", got)
	}
	retry, quota := detailsOf(t, err)
	if d := retry.GetRetryDelay().AsDuration(); d != 700*time.Millisecond {
		t.Errorf("retry after %v", d)
	}
	if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "per user" || v[0].GetDescription() != `policy "per user"` {
		t.Errorf("violations %v", v)
	}
	if s := status.Convert(err).Proto().String(); strings.Contains(s, "alice") {
		t.Errorf("the key is in %s", s)
	}
	want(t, sayIn(as(t.Context(), "bob"), cc, "d"), codes.OK)

	now.Advance(retry.GetRetryDelay().AsDuration() - 1)
	want(t, sayIn(alice, cc, "e"), codes.ResourceExhausted)
	now.Advance(1)
	want(t, sayIn(alice, cc, "f"), codes.OK) // exactly then
}

func TestNoRetryInfoWhenWaitingCannotHelp(t *testing.T) {
	lim, _ := alone(t)
	two := func(context.Context, grpclimit.Call) int64 { return 2 }
	for _, rule := range []*limit.Rule{bucket("one", 1), bucket("none", 0), limit.Must(limit.FixedWindow("nothing", 0, time.Hour))} {
		cc := dial(t, serve(t, nil, echo(), unary(t, lim, rule, grpclimit.ByMethod(), grpclimit.Cost(two))))
		err := say(t, cc, "a")
		want(t, err, codes.ResourceExhausted)
		if retry, quota := detailsOf(t, err); retry != nil || len(quota.GetViolations()) != 1 {
			t.Errorf("%v: %v, %v", rule, retry, quota)
		}
	}
}

// A key is bytes that the caller chose; details are UTF-8 of a bounded length.
func TestShowKey(t *testing.T) {
	lim, _ := alone(t)
	for i, c := range []struct{ key, subject string }{
		{"alice", "alice"},
		{"a\xffb\x00", "a\uFFFDb\x00"},
		{strings.Repeat("x", 1<<20), strings.Repeat("x", 256)},
		{strings.Repeat("x", 255) + "ä", strings.Repeat("x", 255) + "\uFFFD"},
	} {
		rule := bucket(fmt.Sprint("rule \xff", i), 1)
		cc := dial(t, serve(t, nil, echo(), unary(t, lim, rule, grpclimit.Fixed(c.key), grpclimit.ShowKey())))
		want(t, say(t, cc, "a"), codes.OK)
		err := say(t, cc, "b")
		want(t, err, codes.ResourceExhausted)
		retry, quota := detailsOf(t, err)
		if retry == nil || len(quota.GetViolations()) != 1 || quota.GetViolations()[0].GetSubject() != c.subject {
			t.Errorf("%.20q: %v, %v", c.key, retry, quota)
		}
	}
}

func TestCallsWithoutKey(t *testing.T) {
	lim, _ := alone(t)
	const secret = "the database of users says no"
	for name, key := range map[string]grpclimit.KeyFunc{
		"empty": func(context.Context, grpclimit.Call) (string, error) { return "", nil },
		"error": func(context.Context, grpclimit.Call) (string, error) { return "key", errors.New(secret) },
		"other": func(context.Context, grpclimit.Call) (string, error) {
			return "key", status.Error(codes.Aborted, secret)
		},
		"none": grpclimit.ByMetadata("user"),
	} {
		t.Run(name, func(t *testing.T) {
			var served atomic.Int64
			s := echo()
			say1 := s.say
			s.say = func(ctx context.Context, text string) (string, error) { served.Add(1); return say1(ctx, text) }
			for code, opts := range map[codes.Code][]grpclimit.Option{
				codes.InvalidArgument: nil,
				codes.Unauthenticated: {grpclimit.KeyErrorCode(codes.Unauthenticated)},
			} {
				rule := bucket("api", 100)
				cc := dial(t, serve(t, nil, s, unary(t, lim, rule, key, opts...), stream(t, lim, rule, key, opts...)))
				for _, err := range []error{say(t, cc, "a"), streamed(t, cc)} {
					want(t, err, code)
					if st := status.Convert(err); st.Message() != "rate limit: the call has no key" || len(st.Details()) != 0 {
						t.Errorf("%v", st.Proto())
					}
				}
			}
			if served.Load() != 0 {
				t.Error("a call without a key was served")
			}
			for _, k := range []string{"", "key"} {
				if res := lim.Peek(k, bucket("api", 100)); res.Remaining != 100 {
					t.Errorf("counted under %q: %+v", k, res)
				}
			}
		})
	}
}

// What a client is not told is in the error, for interceptors that log.
func TestRefusedErrorForLogs(t *testing.T) {
	lim, _ := alone(t)
	broken := errors.New("broken")
	got := make(chan error, 1)
	log := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		reply, err := handler(ctx, req)
		got <- err
		return reply, err
	}
	key := func(context.Context, grpclimit.Call) (string, error) { return "", broken }
	cc := dial(t, serve(t, nil, echo(), grpc.ChainUnaryInterceptor(log), unary(t, lim, bucket("api", 1), key)))
	want(t, say(t, cc, "a"), codes.InvalidArgument)
	err := <-got
	var refused *grpclimit.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, broken) || refused.Rule != nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
	for _, none := range []*grpclimit.RefusedError{nil, {}} {
		if status.Code(none) != codes.Internal || none.Error() == "" || none.Unwrap() != nil {
			t.Errorf("%v", none)
		}
	}
}

func TestPlan(t *testing.T) {
	lim, _ := alone(t)
	free, pro := bucket("calls", 1), bucket("calls", 3)
	plan := func(ctx context.Context, _ grpclimit.Call) *limit.Rule {
		switch user := metadata.ValueFromIncomingContext(ctx, "user"); user[0] {
		case "pro":
			return pro
		case "broken":
			return new(limit.Rule)
		case "":
			return limit.Unlimited()
		}
		return nil
	}
	cc := dial(t, serve(t, nil, echo(), unary(t, lim, free, grpclimit.ByMetadata("user"), grpclimit.Plan(plan))))
	for user, n := range map[string]int{"free": 1, "pro": 3} {
		for range n {
			want(t, sayIn(as(t.Context(), user), cc, "a"), codes.OK)
		}
		want(t, sayIn(as(t.Context(), user), cc, "a"), codes.ResourceExhausted)
	}
	for range 5 {
		want(t, sayIn(as(t.Context(), ""), cc, "a"), codes.OK) // and has no key
	}
	err := sayIn(as(t.Context(), "broken"), cc, "a")
	want(t, err, codes.Internal)
	if retry, quota := detailsOf(t, err); retry != nil || quota != nil {
		t.Errorf("%v, %v", retry, quota)
	}
}

func TestCost(t *testing.T) {
	lim, _ := alone(t)
	rule, window := bucket("units", 10), limit.Must(limit.FixedWindow("more units", 100, time.Hour))
	cost := func(_ context.Context, call grpclimit.Call) int64 {
		if call.Method != sayMethod || call.Stream {
			t.Errorf("call %+v", call)
		}
		return int64(len(call.Request.(*wrapperspb.StringValue).GetValue())) - 1
	}
	for name, opts := range map[string][]grpclimit.Option{"one": nil, "two": {grpclimit.And(window, grpclimit.Fixed("all"))}} {
		t.Run(name, func(t *testing.T) {
			key := grpclimit.Join(grpclimit.Fixed(name), grpclimit.ByMetadata("user"))
			cc := dial(t, serve(t, nil, echo(), unary(t, lim, rule, key, append(opts, grpclimit.Cost(cost))...)))
			left := func() int64 { return lim.Peek(limit.JoinKey(name, "u"), rule).Remaining }
			ctx := as(t.Context(), "u")
			want(t, sayIn(ctx, cc, "1234567"), codes.OK)
			want(t, sayIn(ctx, cc, "1"), codes.OK) // 0 is 1
			if left() != 3 {
				t.Fatalf("%d left, want 3", left())
			}
			want(t, sayIn(ctx, cc, "12345"), codes.ResourceExhausted)
			want(t, sayIn(ctx, cc, ""), codes.Internal) // -1
			want(t, sayIn(ctx, cc, "1234"), codes.OK)
			if left() != 0 {
				t.Errorf("%d left, want 0", left())
			}
			want(t, sayIn(ctx, cc, "1"), codes.ResourceExhausted)
		})
	}
	if res := lim.Peek("all", window); res.Remaining != 90 {
		t.Errorf("%+v", res)
	}
}

func TestSeveralLimits(t *testing.T) {
	lim, _ := alone(t)
	perUser, perMethod := bucket("per user", 2), bucket("per method", 3)
	cc := dial(t, serve(t, nil, echo(), unary(t, lim, perUser, grpclimit.ByMetadata("user"), grpclimit.And(perMethod, grpclimit.ByMethod()), grpclimit.ShowKey())))
	in := func(user string) context.Context { return as(t.Context(), user) }
	want(t, sayIn(in("a"), cc, ""), codes.OK)
	want(t, sayIn(in("a"), cc, ""), codes.OK)
	err := sayIn(in("a"), cc, "")
	want(t, err, codes.ResourceExhausted)
	if _, quota := detailsOf(t, err); quota.GetViolations()[0].GetSubject() != "a" {
		t.Errorf("%v", quota)
	}
	if left := lim.Peek(sayMethod, perMethod).Remaining; left != 1 {
		t.Errorf("a refused call consumed of the other limit: %d left, want 1", left)
	}
	want(t, sayIn(in("b"), cc, ""), codes.OK)
	err = sayIn(in("b"), cc, "")
	want(t, err, codes.ResourceExhausted)
	if _, quota := detailsOf(t, err); quota.GetViolations()[0].GetSubject() != sayMethod {
		t.Errorf("%v", quota)
	}
	want(t, say(t, cc, ""), codes.InvalidArgument) // one key of two is not enough
}

func TestDryRun(t *testing.T) {
	lim, _ := alone(t)
	var seen []grpclimit.Decision
	observe := grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { seen = append(seen, d) })
	rule := bucket("api", 2)
	plan := grpclimit.Plan(func(context.Context, grpclimit.Call) *limit.Rule { return rule })
	refund := grpclimit.RefundOn(codes.OK, codes.InvalidArgument)
	for i, opts := range [][]grpclimit.Option{{}, {plan}, {grpclimit.And(bucket("other", 5), grpclimit.Fixed("x"))}} {
		seen = nil
		key := grpclimit.Join(grpclimit.Fixed(fmt.Sprint(i)), grpclimit.ByMetadata("user"))
		name := limit.JoinKey(fmt.Sprint(i), "u")
		cc := dial(t, serve(t, nil, echo(), unary(t, lim, rule, key, append(opts, grpclimit.DryRun(), observe, refund)...)))
		if !lim.AllowN(name, rule, 2) { // somebody else's units
			t.Fatal("not fresh")
		}
		want(t, sayIn(as(t.Context(), "u"), cc, ""), codes.OK)
		want(t, say(t, cc, ""), codes.OK) // without a key
		if len(seen) != 2 || !seen[0].Result.WouldRefuse || seen[0].Err != nil || !errors.Is(seen[1].Err, grpclimit.ErrNoKey) {
			t.Errorf("%d: observed %+v", i, seen)
		}
		if res := lim.Peek(name, rule); res.Remaining != 0 {
			t.Errorf("%d: units of others were handed back: %+v", i, res)
		}
	}
}

func TestRefundByCode(t *testing.T) {
	lim, _ := alone(t)
	rule, other := bucket("api", 5), bucket("other", 5)
	for _, c := range []struct {
		err  error
		left int64
	}{
		{nil, 4},
		{status.Error(codes.Unavailable, ""), 5},
		{fmt.Errorf("deeper: %w", status.Error(codes.Unavailable, "")), 5},
		{context.Canceled, 5}, // gRPC makes it codes.Canceled
		{errors.New("unknown"), 4},
	} {
		key := fmt.Sprint("key of ", c.err)
		opts := []grpclimit.Option{grpclimit.RefundOn(codes.Unavailable), grpclimit.RefundOn(codes.Canceled), grpclimit.And(other, grpclimit.Fixed(key))}
		cc := dial(t, serve(t, nil, failing(c.err), unary(t, lim, rule, grpclimit.Fixed(key), opts...), stream(t, lim, rule, grpclimit.Fixed(key), opts...)))
		_ = say(t, cc, "")
		if a, b := lim.Peek(key, rule).Remaining, lim.Peek(key, other).Remaining; a != c.left || b != c.left {
			t.Errorf("unary call with %v: %d and %d left, want %d", c.err, a, b, c.left)
		}
		_ = streamed(t, cc)
		if left := lim.Peek(key, rule).Remaining; left != c.left-(5-c.left) {
			t.Errorf("stream with %v: %d left", c.err, left)
		}
	}
}

// A call that was refused has taken nothing: a refund must not hand back what others took.
func TestNoRefundOfRefusals(t *testing.T) {
	lim, _ := alone(t)
	rule := bucket("api", 1)
	all := []codes.Code{codes.ResourceExhausted, codes.InvalidArgument, codes.Internal}
	cc := dial(t, serve(t, nil, echo(), unary(t, lim, rule, grpclimit.Fixed("k"), grpclimit.RefundOn(all...))))
	want(t, say(t, cc, ""), codes.OK)
	for range 3 {
		want(t, say(t, cc, ""), codes.ResourceExhausted)
	}
}
