package hybrid

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hybridlimit/hybridlimit/internal/decision"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeExact is [Limiter.TakeAll] for limits that must be exact, such as one of log-ins or payouts: Redis
// decides, all checks together or none. It waits for one round trip, or not at all if this node knows
// that it would refuse. If all nodes take a key by TakeExact only, it admits no more than package remote
// does. Source is [limit.SourceRemote] if Redis has decided.
//
// In an outage [Options].Fallback decides, at once. Until the outage is noticed the call fails. Each call
// is executed at most once. With an error the result is a refusal, and the units may have been taken or
// not: only an error about an argument or a key, an [limit.ErrInvalidN], [limit.ErrNilRule],
// [limit.ErrUnsupported] or [*limit.KeyError], means that they were not. The others are
// [limit.ErrClosed], an [*UnavailableError] and the error of ctx, which bounds the time that a caller waits. On
// a Cluster and on a Ring the keys of several checks must be in one shard.
func (l *Limiter) TakeExact(ctx context.Context, checks ...limit.Check) (limit.AllResult, error) {
	for i := range checks {
		if err := l.why(checks[i].Rule, checks[i].N); err != nil {
			if len(checks) > 1 {
				err = fmt.Errorf("check %d: %w", i, err)
			}
			return l.invalidAll(checks, i), fmt.Errorf("hybrid: take: %w", err)
		}
	}
	if len(checks) == 1 && checks[0].Rule.Parts() != nil {
		var few [table.FewChecks]limit.Check
		parts := decision.AppendParts(few[:0], checks[0].Key, checks[0].Rule, checks[0].N)
		return l.takeExactly(ctx, parts, first[:len(parts)])
	}
	all, of := decision.Expand(checks)
	return l.takeExactly(ctx, all, of)
}

// first has the index of an only check for each part of its rule.
var first [16]int

// takeExactly is TakeExact of what [decision.Expand] returned for valid checks.
func (l *Limiter) takeExactly(ctx context.Context, checks []limit.Check, of []int) (limit.AllResult, error) {
	switch {
	case len(checks) == 0:
		return decision.None(), nil
	case l.closed.Load():
		return decision.Refused(checks, -1, decision.Failed), fmt.Errorf("hybrid: take: %w", limit.ErrClosed)
	case l.driver == nil:
		return decision.Original(l.TakeAll(checks...), of), nil
	}
	if by, err := l.driver.store.Together(checks); err != nil {
		v, err := decision.Unfit(checks, of, by, err)
		view{l}.CountInvalid(v.Rule)
		return v, fmt.Errorf("hybrid: take: %w", err)
	}
	v, known := l.knows(checks)
	var err error
	if !known {
		v, err = l.askExactly(decision.Given(ctx), checks)
	}
	return decision.Original(v, of), err
}

// knows decides checks if Redis need not be asked: in an outage, or if this node knows that it would
// refuse.
func (l *Limiter) knows(checks []limit.Check) (v limit.AllResult, known bool) {
	if l.inOutage(checks) {
		return l.TakeAll(checks...), true
	}
	v, now := decision.None(), l.now()
	for i := range checks {
		q := &checks[i]
		if res, refused := l.table.Refuses(q.Key, q.Rule, cmp.Or(q.N, 1), now); refused {
			decision.Add(&v, i, q.Rule, res)
		}
	}
	known = !v.Allowed || len(checks) == 1 && v.WouldRefuse // if only dry runs refuse, Redis counts the others
	if known {
		l.count(checks[v.By].Rule, cmp.Or(checks[v.By].N, 1), v.Result)
	}
	return v, known
}

// inOutage reports whether Redis cannot be reached for any of the checks. If it can for some, it is
// asked: else the fallback would decide keys that Redis decides for other callers.
func (l *Limiter) inOutage(checks []limit.Check) bool {
	for i := range checks {
		if !l.link.Degraded(checks[i].Key) {
			return false
		}
	}
	return true
}

// returnRounds bounds how often a call asks Redis again. After two exchanges of a key all is subtracted
// that was handed back before the first of them, but other callers may have taken it and handed it back
// meanwhile.
const returnRounds = 16

// askExactly lets Redis decide checks. If it refuses them while it counts units that were handed back
// here, it is asked again when it has subtracted these.
func (l *Limiter) askExactly(ctx context.Context, checks []limit.Check) (v limit.AllResult, err error) {
	asked := slices.Clone(checks)
	for i := range asked {
		asked[i].N = cmp.Or(asked[i].N, 1)
	}
	out := make([]limit.Result, len(asked))
	before := make([]uint32, len(asked))
	for round := 0; ; round++ {
		for i := range asked {
			before[i] = l.table.Returned(asked[i].Key, asked[i].Rule)
		}
		byNode := false
		if v, byNode, err = l.askOnce(ctx, asked, out); byNode {
			return l.TakeAll(checks...), nil
		}
		if err != nil || v.Allowed || round == returnRounds || !l.awaitReturns(ctx, asked, before) {
			break
		}
	}
	if err == nil {
		l.countAll(asked, out, &v)
	}
	return v, err
}

// askOnce lets Redis decide checks, and sets out to the answer to each. byNode reports that this node
// must decide them, because an outage has begun.
func (l *Limiter) askOnce(ctx context.Context, asked []limit.Check, out []limit.Result) (v limit.AllResult, byNode bool, err error) {
	all := l.driver.store.SumUp(redisstore.BookState, asked)
	c := &exactCall{checks: asked, TakeRequest: redisstore.TakeRequest{Mode: all.Mode, Asks: all.Asks, By: -1}}
	by, err := l.driver.exact.do(ctx, c)
	switch {
	case err == nil && c.inOutage:
		return v, true, nil
	case err == nil:
		if v, err = all.Judge(&c.Taken, func(i int, res limit.Result) { out[i] = res }); err == nil {
			return v, false, nil
		}
		err = explain("take", err)
		l.stats.ExactFailed.Add(1)
	}
	if len(asked) == 1 {
		by = 0
	}
	return decision.Refused(asked, by, decision.Failed), false, err
}

// awaitReturns waits until Redis has answered the next report of each key that has units which were handed
// back here and are not subtracted in Redis. It reports whether to ask Redis again: after that, or because
// Redis has subtracted some since the call before, whose refunds it had acknowledged so often.
func (l *Limiter) awaitReturns(ctx context.Context, checks []limit.Check, before []uint32) (again bool) {
	var waits []<-chan struct{}
	now := l.now()
	for i, q := range checks {
		if c := l.table.Find(q.Key, q.Rule); c != nil {
			if ended := c.AwaitReturns(now); ended != nil {
				waits = append(waits, ended)
			}
		}
		again = again || l.table.Returned(q.Key, q.Rule) != before[i]
	}
	if again || len(waits) == 0 {
		return again
	}
	ctx, cancel := context.WithTimeout(ctx, l.driver.exact.timeout)
	defer cancel()
	for _, ended := range waits {
		if !l.driver.await(ctx, ended) {
			return false
		}
	}
	return true
}
