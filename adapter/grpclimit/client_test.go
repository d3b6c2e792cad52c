package grpclimit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// counting counts the calls of both kinds that reach a service.
func counting(s *service) (*service, *atomic.Int64) {
	n := new(atomic.Int64)
	return &service{
		say:    func(ctx context.Context, text string) (string, error) { n.Add(1); return s.say(ctx, text) },
		stream: func(ss grpc.ServerStream) error { n.Add(1); return s.stream(ss) },
	}, n
}

func TestClientRefuses(t *testing.T) {
	lim, now := alone(t)
	s, calls := counting(echo())
	rule := bucket("upstream", 2)
	addr := serve(t, nil, s)
	cc := dial(t, addr, clients(t, lim, rule, grpclimit.ByTarget())...)
	want(t, say(t, cc, ""), codes.OK)
	want(t, streamed(t, cc), codes.OK)
	for _, err := range []error{say(t, cc, ""), streamed(t, cc)} {
		want(t, err, codes.ResourceExhausted)
		var refused *grpclimit.RefusedError
		if !errors.As(err, &refused) || refused.Rule != rule || refused.Result.RetryAfter != time.Second {
			t.Errorf("%v: %+v", err, refused)
		}
		if retry, quota := detailsOf(t, err); retry.GetRetryDelay().AsDuration() != time.Second || len(quota.GetViolations()) != 1 {
			t.Errorf("%v, %v", retry, quota)
		}
	}
	if calls.Load() != 2 {
		t.Errorf("%d calls were sent, want 2", calls.Load())
	}
	if lim.Peek(addr, rule).Remaining != 0 {
		t.Error("not counted under the target")
	}
	now.Advance(time.Second)
	want(t, say(t, cc, ""), codes.OK)

	// What the server refuses is no refusal of ours.
	cc = dial(t, serve(t, nil, failing(status.Error(codes.ResourceExhausted, "server"))), clients(t, lim, rule, grpclimit.ByTarget())...)
	err := say(t, cc, "")
	want(t, err, codes.ResourceExhausted)
	if errors.As(err, new(*grpclimit.RefusedError)) {
		t.Errorf("%v", err)
	}
}

func TestClientWithoutKey(t *testing.T) {
	lim, _ := alone(t)
	s, calls := counting(echo())
	none := func(context.Context, grpclimit.Call) (string, error) { return "", nil }
	for _, opts := range [][]grpclimit.Option{nil, {grpclimit.Wait()}} {
		cc := dial(t, serve(t, nil, s), clients(t, lim, bucket("upstream", 2), none, opts...)...)
		want(t, say(t, cc, ""), codes.InvalidArgument)
		want(t, streamed(t, cc), codes.InvalidArgument)
	}
	if calls.Load() != 0 {
		t.Errorf("%d calls were sent", calls.Load())
	}
}

// On a server there is no target: calls are refused, not counted together.
func TestTargetOnServer(t *testing.T) {
	lim, _ := alone(t)
	cc := dial(t, serve(t, nil, echo(), unary(t, lim, bucket("api", 9), grpclimit.ByTarget())))
	want(t, say(t, cc, ""), codes.InvalidArgument)
}

func TestClientWaitEnds(t *testing.T) {
	lim, err := local.New(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	s, calls := counting(echo())
	rule := limit.Must(limit.TokenBucket("upstream", 1, time.Hour, 1))
	addr := serve(t, nil, s)
	cc := dial(t, addr, clients(t, lim, rule, grpclimit.Fixed("k"), grpclimit.Wait())...)
	want(t, say(t, cc, ""), codes.OK)

	// In time is impossible: that is known at once.
	err = say(t, cc, "")
	want(t, err, codes.ResourceExhausted)
	var late *limit.WaitError
	if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if retry, _ := detailsOf(t, err); retry.GetRetryDelay().AsDuration() != late.Need || late.Need > time.Hour || late.Need < 30*time.Minute {
		t.Errorf("%v, %v", retry, late)
	}

	// The caller gives up while it waits.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- cc.Invoke(ctx, sayMethod, wrapperspb.String(""), new(wrapperspb.StringValue)) }()
	go func() {
		_, err := cc.NewStream(ctx, bothWays, streamMethod)
		done <- err
	}()
	eventually(t, "one of them waits", func() bool { return lim.Peek("k", rule).RetryAfter > 90*time.Minute })
	cancel()
	for range 2 {
		err := <-done
		want(t, err, codes.Canceled)
		if !errors.As(err, new(*grpclimit.RefusedError)) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if res := lim.Peek("k", rule); res.RetryAfter > time.Hour {
		t.Errorf("what was booked was not handed back: %+v", res)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls were sent", calls.Load())
	}

	// The limiter ends while a call waits.
	cc = dial(t, addr, clients(t, lim, rule, grpclimit.Fixed("closed"), grpclimit.Wait())...)
	want(t, say(t, cc, ""), codes.OK)
	go func() { done <- cc.Invoke(t.Context(), sayMethod, wrapperspb.String(""), new(wrapperspb.StringValue)) }()
	eventually(t, "it waits", func() bool { return lim.Peek("closed", rule).RetryAfter > time.Hour })
	lim.Close()
	want(t, <-done, codes.Unavailable)
}

func TestClientDryRunDoesNotWait(t *testing.T) {
	lim, _ := alone(t)
	rule := bucket("upstream", 1)
	cc := dial(t, serve(t, nil, failing(status.Error(codes.Unavailable, ""))), clients(t, lim, rule, grpclimit.Fixed("k"), grpclimit.Wait(), grpclimit.DryRun(), grpclimit.RefundOn(codes.Unavailable))...)
	lim.Allow("k", rule) // somebody else's
	want(t, say(t, cc, ""), codes.Unavailable)
	if lim.Peek("k", rule).Remaining != 0 {
		t.Error("units of others were handed back")
	}
}

func TestClientRefunds(t *testing.T) {
	lim, _ := alone(t)
	rule := bucket("upstream", 5)
	left := func() int64 { return lim.Peek("k", rule).Remaining }
	opts := clients(t, lim, rule, grpclimit.Fixed("k"), grpclimit.RefundOn(codes.Unavailable, codes.Canceled, codes.OK))
	gone := dial(t, serve(t, nil, failing(status.Error(codes.Unavailable, ""))), opts...)
	broken := dial(t, serve(t, nil, failing(status.Error(codes.Internal, ""))), opts...)
	fine := dial(t, serve(t, nil, echo()), opts...)
	for i, c := range []struct {
		call func() error
		left int64
	}{
		{func() error { return say(t, gone, "") }, 5},
		{func() error { return streamed(t, gone) }, 5},
		{func() error { return say(t, broken, "") }, 4},
		{func() error { return streamed(t, broken) }, 3},
		{func() error { return say(t, fine, "") }, 3},
		{func() error { return streamed(t, fine) }, 3},
	} {
		if _ = c.call(); left() != c.left {
			t.Errorf("call %d: %d left, want %d", i, left(), c.left)
		}
	}
}
