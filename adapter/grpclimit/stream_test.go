package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestOpening(t *testing.T) {
	lim, now := alone(t)
	cc := dial(t, serve(t, nil, echo(), stream(t, lim, bucket("streams", 2), grpclimit.ByPeer())))
	first, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // messages are not counted
		want(t, exchange(first, "a"), codes.OK)
	}
	want(t, streamed(t, cc), codes.OK)
	err = streamed(t, cc)
	want(t, err, codes.ResourceExhausted)
	if retry, _ := detailsOf(t, err); retry.GetRetryDelay().AsDuration() != time.Second {
		t.Errorf("%v", retry)
	}
	want(t, exchange(first, "a"), codes.OK) // one that is open goes on
	now.Advance(time.Second)
	want(t, streamed(t, cc), codes.OK)
	want(t, say(t, cc, ""), codes.OK) // unary calls are not its business
}

func TestEachMessage(t *testing.T) {
	lim, now := alone(t)
	messages := bucket("messages", 3)
	cost := func(_ context.Context, m any) int64 { return int64(len(m.(*wrapperspb.StringValue).GetValue())) }
	cc := dial(t, serve(t, nil, echo(), stream(t, lim, bucket("streams", 100), grpclimit.ByPeer(), grpclimit.EachMessage(messages, cost))))
	cs, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	want(t, exchange(cs, "12"), codes.OK)
	want(t, exchange(cs, ""), codes.OK) // 0 is 1
	err = exchange(cs, "1")
	want(t, err, codes.ResourceExhausted)
	retry, quota := detailsOf(t, err)
	if retry.GetRetryDelay().AsDuration() != time.Second || quota.GetViolations()[0].GetSubject() != "messages" {
		t.Errorf("%v, %v", retry, quota)
	}

	// All streams of a key count together.
	if cs, err = open(t, cc, bothWays); err != nil {
		t.Fatal(err)
	}
	want(t, exchange(cs, "1"), codes.ResourceExhausted)
	now.Advance(time.Second)
	if cs, err = open(t, cc, bothWays); err != nil {
		t.Fatal(err)
	}
	want(t, exchange(cs, "1"), codes.OK)
	want(t, exchange(cs, "1234"), codes.ResourceExhausted)
}

func TestEachMessageBelowZero(t *testing.T) {
	lim, _ := alone(t)
	less := func(context.Context, any) int64 { return -1 }
	cc := dial(t, serve(t, nil, echo(), stream(t, lim, bucket("streams", 100), grpclimit.ByPeer(), grpclimit.EachMessage(bucket("messages", 3), less))))
	cs, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	want(t, exchange(cs, ""), codes.Internal)
}

// A handler that takes a refusal for the end of the stream must not tell the caller that
// all of it was read, nor read on.
func TestHandlerThatIgnoresRefusals(t *testing.T) {
	lim, now := alone(t)
	own := status.Error(codes.Aborted, "the handler's own")
	messages := bucket("messages", 1)
	for _, c := range []struct {
		returns error
		code    codes.Code
	}{{nil, codes.ResourceExhausted}, {own, codes.Aborted}} {
		read := make(chan int, 1)
		silent := &service{stream: func(ss grpc.ServerStream) error {
			n := 0
			for range 10 {
				if err := ss.RecvMsg(new(wrapperspb.StringValue)); err == nil {
					n++
				}
				now.Advance(time.Second) // so that another message would be admitted
			}
			read <- n
			return c.returns
		}}
		key := c.code.String()
		lim.Allow(key, messages)
		cc := dial(t, serve(t, nil, silent, stream(t, lim, bucket("streams", 100), grpclimit.Fixed(key), grpclimit.EachMessage(messages, nil))))
		cs, err := open(t, cc, oneReply)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := cs.SendMsg(wrapperspb.String("")); err != nil {
				break // it has ended
			}
		}
		want(t, cs.RecvMsg(new(wrapperspb.StringValue)), c.code)
		if n := <-read; n != 0 {
			t.Errorf("%d messages were read after a refusal", n)
		}
	}
}

func TestEachMessageWithoutKey(t *testing.T) {
	lim, _ := alone(t)
	messages := grpclimit.EachMessage(bucket("messages", 1), nil)
	var seen []grpclimit.Decision
	observe := grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { seen = append(seen, d) })

	cc := dial(t, serve(t, nil, echo(), stream(t, lim, bucket("streams", 1), grpclimit.ByMetadata("user"), messages)))
	want(t, streamed(t, cc), codes.InvalidArgument)

	// A dry run lets the stream pass, and says so once.
	cc = dial(t, serve(t, nil, echo(), stream(t, lim, bucket("streams", 1), grpclimit.ByMetadata("user"), messages, observe, grpclimit.DryRun())))
	cs, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		want(t, exchange(cs, ""), codes.OK)
	}
	if len(seen) != 1 || !errors.Is(seen[0].Err, grpclimit.ErrNoKey) {
		t.Errorf("observed %+v", seen)
	}
}

func TestUnlimitedStream(t *testing.T) {
	lim, _ := alone(t)
	plan := grpclimit.Plan(func(context.Context, grpclimit.Call) *limit.Rule { return limit.Unlimited() })
	observe := grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { t.Errorf("decided %+v", d) })
	cc := dial(t, serve(t, nil, echo(), stream(t, lim, bucket("streams", 0), grpclimit.ByMetadata("user"), plan, observe, grpclimit.EachMessage(bucket("messages", 0), nil))))
	cs, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		want(t, exchange(cs, ""), codes.OK)
	}
}

func TestEachMessageDryRun(t *testing.T) {
	lim, _ := alone(t)
	would := make(chan bool, 10)
	observe := grpclimit.Observe(func(_ context.Context, d grpclimit.Decision) { would <- d.Result.WouldRefuse })
	cc := dial(t, serve(t, nil, echo(), stream(t, lim, bucket("streams", 1), grpclimit.ByPeer(), grpclimit.DryRun(), observe, grpclimit.EachMessage(bucket("messages", 1), nil))))
	cs, err := open(t, cc, bothWays)
	if err != nil {
		t.Fatal(err)
	}
	for i, refuses := range []bool{false, false, true} { // opening, and two messages
		if i > 0 {
			want(t, exchange(cs, ""), codes.OK)
		}
		if got := <-would; got != refuses {
			t.Errorf("decision %d: would refuse: %v", i, got)
		}
	}
}

// The context of a stream that the caller has left ends, and with it the handler: nothing
// is left behind (TestMain looks for it).
func TestStreamCancelled(t *testing.T) {
	lim, _ := alone(t)
	ended := make(chan error, 1)
	s := &service{stream: func(ss grpc.ServerStream) error {
		err := echo().stream(ss)
		ended <- err
		return err
	}}
	rule := bucket("streams", 2)
	cc := dial(t, serve(t, nil, s, stream(t, lim, rule, grpclimit.ByPeer(), grpclimit.RefundOn(codes.Canceled), grpclimit.EachMessage(bucket("messages", 9), nil))))
	ctx, cancel := context.WithCancel(t.Context())
	cs, err := cc.NewStream(ctx, bothWays, streamMethod)
	if err != nil {
		t.Fatal(err)
	}
	want(t, exchange(cs, ""), codes.OK)
	cancel()
	want(t, cs.RecvMsg(new(wrapperspb.StringValue)), codes.Canceled)
	want(t, <-ended, codes.Canceled)
	eventually(t, "the units are handed back", func() bool { return lim.Peek("127.0.0.1", rule).Remaining == 2 })
}

// eventually waits until ok says so.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range int(patience / time.Millisecond) {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("not after %v: %s", patience, what)
}
