package hybrid

import (
	"context"
	"errors"
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/table"
	"github.com/hybridlimit/hybridlimit/limit"
)

// TakeAtMost admits what is left of key, up to n units, and returns how many
// those are. Allowed tells whether it was any; if not, RetryAfter is when there
// will be one. 0 units consume nothing and are allowed; what [Limiter.Take]
// refuses without looking gets nothing. A dry run grants all of them, and
// consumes all or none.
func (l *Limiter) TakeAtMost(key string, rule *limit.Rule, n int64) (granted int64, res limit.Result) {
	if !l.usable(rule, n) {
		return 0, l.invalid(key, rule, n)
	}
	if rule.IsDryRun() {
		return n, l.Take(key, rule, n)
	}
	granted, res = l.table.TakeAtMost(key, rule, n, l.now())
	l.tally.count(granted, res.Allowed, res.Source)
	return granted, res
}

// Refund hands n units of key back, because the call that they were taken for
// did not happen, and returns how many: never more than this node knows to be
// counted, so that a key is never better off than if it had not been used. The
// newest units go first. Units that Redis has not been told of are simply never
// reported; the others are handed back there, exactly once, with the next
// report, and every node learns of it as of anything else.
//
// Call it on the node that has taken the units, and soon: a unit that counts no
// longer cannot be handed back, and in its place a newer one would be. Nor can
// what Redis has been told of a funnel that is fuller than full: somebody may have
// booked ahead, and keeps his time. If Redis finds that somebody has, whom this
// node had not heard of, it keeps what this node has handed back. A negative
// n, or a rule that [Limiter.CheckRule] finds fault with, hands nothing back. After
// Close Redis does not hear of it any more.
func (l *Limiter) Refund(key string, rule *limit.Rule, n int64) (back int64) {
	if !l.usable(rule, n) {
		l.invalid(key, rule, n)
		return 0
	}
	back = l.table.Refund(key, rule, n, l.now())
	l.stats.refunded.Add(back)
	return back
}

// Reset forgets what has been used of key, for the whole fleet: it is
// [Limiter.Set] to 0.
func (l *Limiter) Reset(ctx context.Context, key string, rule *limit.Rule) error {
	return l.Set(ctx, key, rule, 0)
}

// Set makes used units of key count, whatever was counted before: what an
// upstream service says in a header, for example. More than the limit is a debt.
//
// It is done in Redis when Set returns without an error, and known to this node;
// the others learn of it with their next report of the key, those that refuse
// it within a lag of their next check. Units that another node has
// admitted, but not reported by then, come on top. Views from before do not come
// back, not even after a loss of data: this node remembers for as long as one could
// matter (the window, or the time in which a full funnel drains), and so does every
// other that has heard of it. What a node that has not heard of it books before they
// can say so counts together with what it had known: the key admits less then. If
// there is no room to remember the key ([Stats].Overflow counts that as a decision),
// only the others do.
//
// It is one round trip. Errors: [limit.ErrInvalidN] for used < 0, what
// [Limiter.CheckRule] says of the rule, [limit.ErrClosed], an [*UnavailableError]
// if Redis could not be reached or a [*limit.KeyError] if the key is unusable
// there. With an error it is unknown whether it was done; to repeat it is safe.
// A limiter without Redis sets its own counter, or returns [limit.ErrNoRoom] if
// there are too many keys to remember this one.
func (l *Limiter) Set(ctx context.Context, key string, rule *limit.Rule, used int64) error {
	if err := l.CheckRule(rule); err != nil {
		return err
	}
	switch {
	case used < 0:
		return fmt.Errorf("hybrid: %w: %d", limit.ErrInvalidN, used)
	case l == nil || l.table == nil || l.closed.Load():
		return fmt.Errorf("hybrid: set: %w", limit.ErrClosed)
	case l.driver == nil:
		if !l.table.Set(key, rule, used, l.now()) {
			return fmt.Errorf("hybrid: set: %w", limit.ErrNoRoom)
		}
		return nil
	}
	done, err := l.driver.store.Renew(orBackground(ctx), key, rule, used)
	if err != nil {
		return explain("set", err)
	}
	now := l.now()
	l.table.Renew(key, rule, now, renewal(now, done))
	return nil
}

// renewal translates what Redis says of a counter that was set. When exactly
// that was done is not known; the later, the safer.
func renewal(recv int64, done redisstore.Renewed) table.Renewal {
	return table.Renewal{
		Gen: done.State.Gen, Born: done.State.Born, Level: done.State.Level, Buckets: toLocal(done.State.Buckets),
		At: recv, ServerNow: int64(done.Now),
	}
}

// explain puts the error of a single exchange into the package's own.
func explain(what string, err error) error {
	var key *limit.KeyError
	if errors.As(err, &key) || errors.Is(err, limit.ErrInvalidN) {
		return fmt.Errorf("hybrid: %s: %w", what, err)
	}
	_, reason := redisstore.Classify(err)
	return fmt.Errorf("hybrid: %s: %w", what, &UnavailableError{Reason: reason, Err: err})
}
