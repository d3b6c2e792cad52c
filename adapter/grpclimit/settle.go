package grpclimit

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/internal/settle"
	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// errPanicked is the error of a call whose handler has not returned.
var errPanicked = status.Error(codes.Internal, "the handler has panicked")

// End is how a call has ended: what the function of [Settle] judges its cost by.
type End struct {
	// Taken is the estimate, in units. A function that returns it changes nothing.
	Taken int64
	// Counted is the sum of what [Count] was told about this call.
	Counted int64
	// Reply is the message that a unary call was answered with, or on a client the only reply of
	// a stream. It is nil for other streams, and with an Err.
	Reply any
	// Err is what the call has ended with; nil if it has ended well. If a handler has panicked, its
	// code is codes.Internal.
	Err error
	// Took is how long the call lasted after it was admitted.
	Took time.Duration
}

// Count adds n to [End].Counted of the call that ctx belongs to: for a handler that learns the
// cost while it answers, such as tokens that it streams. On a server ctx is the context that the
// handler got, or one derived from it; on a client that of the stream, after its RecvMsg has
// returned. If a call is made within another, as by a handler with the context that it got, both
// hear of it; so do requests of package httplimit. It is safe for concurrent use, n may be negative,
// and nothing happens if nobody settles. What is counted after the call has ended is not booked, and
// the log says so: give the cost to Charge of the limiter then.
func Count(ctx context.Context, n int64) { settle.Count(ctx, n) }

// course is a call that was admitted.
type course struct {
	call  Call
	took  claim
	meter *settle.Meter // nil if it is not settled
	began time.Duration
}

// begin returns the context that a call goes on with.
func (g *gate) begin(ctx context.Context, call Call, took claim) (context.Context, course) {
	c := course{call: call, took: took}
	if g.settle == nil || took.failed || len(took.checks) == 0 {
		return ctx, c
	}
	ctx, c.meter = settle.Within(ctx)
	c.began = clock.System{}.Now()
	return ctx, c
}

// ended hands back what a call has taken if it ended in such a way, or else books what it has cost.
// What may not have been taken is kept: it would be handed back out of the units of others.
func (g *gate) ended(ctx context.Context, c course, reply any, err error) {
	back := g.refunds != nil && err != errPanicked && g.refunds[codeOf(err)]
	if c.took.failed || !back && c.meter == nil {
		return
	}
	counted := int64(0)
	if c.meter != nil {
		counted = c.meter.End(func(err error) { g.owed.Note(ctx, true, err) })
	}
	taken := make([]limit.Check, 0, len(c.took.checks))
	for _, q := range c.took.checks {
		if !c.took.unsure || !q.Rule.IsDryRun() {
			taken = append(taken, q)
		}
	}
	switch {
	case len(taken) == 0:
	case back:
		g.refund(ctx, taken)
	default:
		g.settleAll(ctx, c, taken, counted, reply, err)
	}
}

// refund hands units back, also if the caller has gone.
func (g *gate) refund(ctx context.Context, taken []limit.Check) {
	for _, q := range taken {
		if _, err := g.lim.Refund(context.WithoutCancel(ctx), q.Key, q.Rule, q.N); err != nil {
			g.kept.Note(ctx, true, err)
		}
	}
}

// settleAll books what a call has cost under each of its rules.
func (g *gate) settleAll(ctx context.Context, c course, taken []limit.Check, counted int64, reply any, err error) {
	end := End{Taken: taken[0].N, Counted: counted, Err: err, Took: max(clock.System{}.Now()-c.began, 0)}
	if err == nil {
		end.Reply = reply
	}
	cost := g.settle(ctx, c.call, end)
	if cost < 0 {
		undecided.Count(g.lim, taken[0].Rule)
		taken = taken[:1] // one line is enough
	}
	for i := range taken {
		if err := settle.Book(ctx, g.lim, &taken[i], cost); err != nil {
			g.owed.Note(ctx, true, err)
		}
	}
}

// meteredStream is a server's stream whose handler can count.
type meteredStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is that of the call, for [Count].
func (s *meteredStream) Context() context.Context { return s.ctx }
