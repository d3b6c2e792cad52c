package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

const (
	// maxPause bounds what a server can ask for, whatever the options say.
	maxPause = time.Hour
	// setTimeout bounds the round trips to Redis.
	setTimeout = time.Second
	// slack is by how much calls that fail together may differ in what they are asked for.
	slack = 10 * time.Millisecond
)

// follower makes a limiter do what servers ask for. It is safe for concurrent use.
type follower struct {
	most time.Duration
	lim  limit.ContextLimiter

	mu   sync.Mutex
	busy map[target]bool // counters being set: as many as calls are ending, at most
}

// target is a counter.
type target struct{ name, key string }

func newFollower(lim limit.ContextLimiter, most time.Duration) *follower {
	return &follower{most: most, lim: lim, busy: map[target]bool{}}
}

// heed does what the server asked for in the error of a call that took q, if anything.
func (f *follower) heed(ctx context.Context, q limit.Check, err error) error {
	pause := min(retryDelay(err), f.most)
	if pause <= 0 {
		return nil
	}
	if a := arith.Of(q.Rule).Algorithm; a != arith.TokenBucket { // as Plan chose it
		return fmt.Errorf("grpclimit: follow a RetryInfo: needs a token bucket, not a %v", a)
	}
	t := target{q.Rule.Name(), q.Key}
	if !f.begin(t) {
		return nil // another call that has failed just now does it
	}
	defer f.end(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), setTimeout)
	defer cancel()
	// Never shorten a wait. Calls that fail together ask for nearly the same time: one round
	// trip is enough for all of them.
	res, err := f.lim.Peek(ctx, q.Key, q.Rule)
	if err != nil {
		return fmt.Errorf("grpclimit: follow a RetryInfo: %w", err)
	}
	if known := res.RetryAfter; known >= pause-min(slack, pause/8) {
		return nil
	}
	if err := f.lim.Set(ctx, q.Key, q.Rule, usedFor(q.Rule, pause)); err != nil {
		return fmt.Errorf("grpclimit: follow a RetryInfo: %w", err)
	}
	return nil
}

func (f *follower) begin(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[t] {
		return false
	}
	f.busy[t] = true
	return true
}

func (f *follower) end(t target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, t)
}

// usedFor returns how full a bucket must be to admit the next unit after pause, and not
// before: one unit less than its capacity, and what leaks in the meantime.
func usedFor(rule *limit.Rule, pause time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(pause), uint64(arith.Of(rule).Units))
	lo, carry := bits.Add64(lo, uint64(rule.Period()-1), 0) // round up
	hi += carry
	if hi >= uint64(rule.Period()) {
		return arith.MaxUnits
	}
	leaks, _ := bits.Div64(hi, lo, uint64(rule.Period()))
	before := max(rule.Limit()-1, 0)
	return before + int64(min(leaks, uint64(arith.MaxUnits-before)))
}

// retryDelay returns the pause that a server asks for; 0 if it asks for none, or for
// nonsense.
func retryDelay(err error) time.Duration {
	var own *RefusedError
	if errors.As(err, &own) { // another interceptor's, not a server's
		return 0
	}
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}
