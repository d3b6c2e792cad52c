package grpclimit_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// busy is the error of a server that asks for a pause.
func busy(t testing.TB, code codes.Code, pause *durationpb.Duration) error {
	t.Helper()
	s, err := status.New(code, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: pause})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// The pause that the limiter makes is what the server asked for, rounded up to a unit.
func TestFollow(t *testing.T) {
	const most = time.Minute
	tenth := limit.Must(limit.TokenBucket("tenth", 10, time.Second, 5)) // 100 ms a unit
	odd := limit.Must(limit.TokenBucket("odd", 7, 3*time.Second, 1))    // 3/7 s a unit
	fast := limit.Must(limit.TokenBucket("fast", arith.MaxUnits, time.Second, arith.MaxUnits-1))
	sec := func(s int64, ns int32) *durationpb.Duration { return &durationpb.Duration{Seconds: s, Nanos: ns} }
	for _, c := range []struct {
		name        string
		rule        *limit.Rule
		code        codes.Code
		asked       *durationpb.Duration
		least, most time.Duration
	}{
		{"whole units", tenth, codes.ResourceExhausted, sec(2, 0), 2 * time.Second, 2 * time.Second},
		{"a part of a unit", tenth, codes.ResourceExhausted, sec(0, 1), 100 * time.Millisecond, 100 * time.Millisecond},
		{"unavailable", tenth, codes.Unavailable, sec(2, 0), 2 * time.Second, 2 * time.Second},
		{"odd units", odd, codes.ResourceExhausted, sec(1, 0), time.Second, 9*time.Second/7 + 1},
		{"more than units there are", fast, codes.ResourceExhausted, sec(30, 0), 0, most},
		{"too long", tenth, codes.ResourceExhausted, sec(3600, 0), most, most},
		{"no duration", tenth, codes.ResourceExhausted, nil, 0, 0},
		{"nothing", tenth, codes.ResourceExhausted, sec(0, 0), 0, 0},
		{"nonsense", tenth, codes.ResourceExhausted, sec(math.MaxInt64, math.MaxInt32), 0, 0},
		{"signs that differ", tenth, codes.ResourceExhausted, sec(5, -1), 0, 0},
		{"another code", tenth, codes.Internal, sec(2, 0), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			lim, _ := alone(t)
			cc := dial(t, serve(t, nil, failing(busy(t, c.code, c.asked))), clients(t, lim, c.rule, grpclimit.Fixed("k"), grpclimit.FollowRetryInfo(most))...)
			want(t, say(t, cc, ""), c.code)
			if got := lim.Peek("k", c.rule).RetryAfter; got < c.least || got > c.most {
				t.Errorf("paused for %v, want %v to %v", got, c.least, c.most)
			}
		})
	}
}

// A pause that is known is not shortened, and for one that is as long nothing is set.
func TestFollowNeverShortens(t *testing.T) {
	lim, now := alone(t)
	rule := bucket("upstream", 100)
	var asked atomic.Int64 // seconds
	s := &service{say: func(context.Context, string) (string, error) {
		return "", busy(t, codes.ResourceExhausted, durationpb.New(time.Duration(asked.Load())*time.Second))
	}}
	addr := serve(t, nil, s)
	for _, c := range []struct{ set, asked, want int64 }{
		{0, 0, 0},     // the server asks for nothing
		{0, 10, 10},   // longer than what is known
		{120, 10, 21}, // 120 of 100 are used: 21 s to the next
	} {
		now.Advance(time.Hour)
		asked.Store(c.asked)
		// The call has passed before the counter is set by somebody else: it is in flight.
		cc := dial(t, addr, append(clients(t, lim, rule, grpclimit.Fixed("k"), grpclimit.FollowRetryInfo(time.Hour)),
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if c.set > 0 {
					if err := lim.Set("k", rule, c.set); err != nil {
						t.Error(err)
					}
				}
				return invoker(ctx, method, req, reply, cc, opts...)
			}))...)
		want(t, say(t, cc, ""), codes.ResourceExhausted)
		if got := lim.Peek("k", rule).RetryAfter; got != time.Duration(c.want)*time.Second {
			t.Errorf("set %d, asked for %d s: paused for %v, want %d s", c.set, c.asked, got, c.want)
		}
	}
}

// setter counts what is set, in a limiter whose Set takes a context as that of hybrid does.
type setter struct {
	memory
	set func(ctx context.Context, used int64) error
}

func (s *setter) Set(ctx context.Context, _ string, _ *limit.Rule, used int64) error {
	return s.set(ctx, used)
}

// An error is told to the observer and not to the caller, who gets what the server said.
// The call's context may have ended by then: the pause is set all the same, in bounded time.
func TestFollowFails(t *testing.T) {
	lim, _ := alone(t)
	broken := errors.New("no Redis")
	var sets int
	l := &setter{lim, func(ctx context.Context, used int64) error {
		sets++
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Second || errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("the context ends at %v, %v, %v", end, ok, ctx.Err())
		}
		return broken
	}}
	var told []grpclimit.Decision
	rule := bucket("upstream", 9)
	ctx, cancel := context.WithCancel(t.Context())
	s := failing(busy(t, codes.ResourceExhausted, durationpb.New(time.Minute)))
	cc := dial(t, serve(t, nil, s), append(
		clients(t, l, rule, grpclimit.Fixed("k"), grpclimit.FollowRetryInfo(time.Hour), grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { told = append(told, d) })),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			defer cancel() // when the answer is there
			return invoker(ctx, method, req, reply, cc, opts...)
		}))...)
	err := sayIn(ctx, cc, "")
	want(t, err, codes.ResourceExhausted)
	if status.Convert(err).Message() != "busy" || sets != 1 || len(told) != 2 || !errors.Is(told[1].Err, broken) || told[1].Rule != rule {
		t.Errorf("%v, %d sets, told %+v", err, sets, told)
	}
}

// Calls that fail together cost one round trip: while the first of them sets the counter, the
// others return. Later ones are followed again.
func TestFollowTogether(t *testing.T) {
	lim, now := alone(t)
	rule := bucket("upstream", 100)
	const callers = 20
	var sets, returned atomic.Int64
	release := make(chan struct{})
	l := &setter{lim, func(_ context.Context, used int64) error {
		sets.Add(1)
		<-release
		return lim.Set("k", rule, used)
	}}
	s := failing(busy(t, codes.ResourceExhausted, durationpb.New(time.Minute)))
	cc := dial(t, serve(t, nil, s), clients(t, l, rule, grpclimit.Fixed("k"), grpclimit.FollowRetryInfo(time.Hour))...)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if err := sayIn(t.Context(), cc, ""); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
			returned.Add(1)
		})
	}
	eventually(t, "all but one return", func() bool { return returned.Load() == callers-1 || sets.Load() > 1 })
	close(release)
	wg.Wait()
	for range 2 {
		if lim.Peek("k", rule).RetryAfter != time.Minute {
			t.Errorf("%+v", lim.Peek("k", rule))
		}
		now.Advance(time.Hour)
		want(t, say(t, cc, ""), codes.ResourceExhausted)
	}
	if sets.Load() != 3 {
		t.Errorf("set %d times, want once for each time that calls fail", sets.Load())
	}
}

// Two client interceptors: the refusal of the inner one is none of a server.
func TestFollowNoOwnRefusal(t *testing.T) {
	lim, _ := alone(t)
	outer, inner := bucket("outer", 9), limit.Must(limit.TokenBucket("inner", 1, time.Hour, 1))
	cc := dial(t, serve(t, nil, echo()), append(
		clients(t, lim, outer, grpclimit.Fixed("k"), grpclimit.FollowRetryInfo(time.Hour)),
		clients(t, lim, inner, grpclimit.Fixed("k"))...)...)
	want(t, say(t, cc, ""), codes.OK)
	want(t, say(t, cc, ""), codes.ResourceExhausted)
	if res := lim.Peek("k", outer); res.Remaining != 7 {
		t.Errorf("%+v", res)
	}
}

// A plan may choose a rule that has no place for a pause: that is told.
func TestFollowInAWindowOfAPlan(t *testing.T) {
	lim, _ := alone(t)
	window := limit.Must(limit.SlidingWindow("window", 5, time.Minute))
	var told []error
	observe := grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { told = append(told, d.Err) })
	plan := grpclimit.Plan(func(context.Context, grpclimit.Call) *limit.Rule { return window })
	s := failing(busy(t, codes.ResourceExhausted, durationpb.New(time.Minute)))
	cc := dial(t, serve(t, nil, s), clients(t, lim, bucket("b", 9), grpclimit.Fixed("k"), plan, observe, grpclimit.FollowRetryInfo(time.Hour))...)
	want(t, say(t, cc, ""), codes.ResourceExhausted)
	if len(told) != 2 || told[1] == nil || lim.Peek("k", window).Remaining != 4 {
		t.Errorf("told %v, %+v", told, lim.Peek("k", window))
	}
}

// A stream hears the server at its end, once.
func TestFollowStream(t *testing.T) {
	lim, now := alone(t)
	rule := bucket("upstream", 9)
	s := &service{stream: func(ss grpc.ServerStream) error {
		if err := ss.SendMsg(wrapperspb.String("")); err != nil {
			return err
		}
		return busy(t, codes.ResourceExhausted, durationpb.New(time.Minute))
	}}
	cc := dial(t, serve(t, nil, s), clients(t, lim, rule, grpclimit.Fixed("k"), grpclimit.FollowRetryInfo(time.Hour))...)
	cs, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	want(t, cs.RecvMsg(new(wrapperspb.StringValue)), codes.OK)
	if res := lim.Peek("k", rule); res.Remaining != 8 {
		t.Errorf("paused before the end: %+v", res)
	}
	want(t, cs.RecvMsg(new(wrapperspb.StringValue)), codes.ResourceExhausted)
	if got := lim.Peek("k", rule).RetryAfter; got != time.Minute {
		t.Errorf("paused for %v", got)
	}
	now.Advance(30 * time.Second)
	want(t, cs.RecvMsg(new(wrapperspb.StringValue)), codes.ResourceExhausted)
	if got := lim.Peek("k", rule).RetryAfter; got != 30*time.Second {
		t.Errorf("paused again: %v", got)
	}
}
