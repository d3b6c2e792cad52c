package resp

import (
	"context"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

const exactRules = `
rules:
  login: {algorithm: sliding-window, limit: 5, per: 1m, exact: true}
  api: {algorithm: sliding-window, limit: 5, per: 1m}
`

// remote is a limiter that waits for Redis until the caller gives up, or fails at once.
type remote struct {
	*hybrid.Limiter
	fail   error
	waits  chan struct{} // of a call that waits
	ended  chan struct{} // its context has ended
	enough chan struct{} // the test has waited long enough
}

func (r *remote) TakeExact(ctx context.Context, _ ...limit.Check) (limit.AllResult, error) {
	if r.fail != nil {
		return limit.AllResult{Result: limit.Result{Source: limit.SourceRemote}}, r.fail
	}
	r.waits <- struct{}{}
	select {
	case <-ctx.Done():
		close(r.ended)
	case <-r.enough:
	}
	return limit.AllResult{Result: limit.Result{Source: limit.SourceRemote}}, ctx.Err()
}

// What Redis does not decide is an error reply, also within a transaction, and the connection goes on.
func TestExactUndecided(t *testing.T) {
	lim, _ := alone(t)
	away := &remote{Limiter: lim, fail: &hybrid.UnavailableError{Reason: "timeout"}}
	s, addr := listen(t, Options{Limiter: away, Rules: ruleset(t, exactRules)})
	c := connect(t, addr)
	c.wantError(c.do("HL.TAKE login alice"), "UNAVAILABLE the limit is exact, and Redis has not decided (timeout): the units may have been taken")
	c.want("HL.TAKE login alice 0", ints(0, 5, 5, -1, 0))
	c.want("HL.PEEK login alice", ints(0, 5, 5, -1, 0))
	c.want("HL.CHARGE login alice 1", ints(0, 5, 4, -1, 60))
	c.want("HL.TAKE api alice", ints(0, 5, 4, -1, 60))
	c.want("CL.THROTTLE alice 4 5 60", ints(0, 5, 4, -1, 12))
	c.want("MULTI", "OK")
	c.want("HL.TAKE login alice", "QUEUED")
	c.want("HL.TAKE api alice", "QUEUED")
	list, ok := c.do("EXEC").([]any)
	if !ok || len(list) != 2 {
		t.Fatalf("%v", list)
	}
	c.wantError(list[0], "UNAVAILABLE")
	if s.Stats().Errors != 2 {
		t.Errorf("%+v", s.Stats())
	}
}

// A server that stops does not wait for Redis longer than for its clients.
func TestExactEndsWithTheConnection(t *testing.T) {
	lim, _ := alone(t)
	slow := &remote{Limiter: lim, waits: make(chan struct{}), ended: make(chan struct{}), enough: make(chan struct{})}
	s, addr := listen(t, Options{Limiter: slow, Rules: ruleset(t, exactRules)})
	c := connect(t, addr)
	c.raw(encode("HL.TAKE", "login", "alice"))
	<-slow.waits
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err == nil {
		t.Error("nothing was cut off")
	}
	select {
	case <-slow.ended:
	case <-time.After(10 * time.Second):
		t.Error("the call still waits for Redis")
		close(slow.enough)
	}
}
