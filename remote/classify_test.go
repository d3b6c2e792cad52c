package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// What Redis refuses has one name, whichever call it was for: one for users, a batch or a heartbeat. Nothing of it
// is applied.
//
// Faults 22, 23, 24, 25: a batch is applied not at all, and the reason is told.
func TestClassifyEveryCall(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, binary string) { classifyEveryCall(t, onServer(t, binary)) })
}

func classifyEveryCall(t *testing.T, b *backend) {
	l, s := b.limiter(), b.store()
	host, port, _ := strings.Cut(b.addr, ":")
	acl := func(rules ...any) []any { return append([]any{"ACL", "SETUSER", "default"}, rules...) }
	drain := funnel(t, 10, 1, time.Hour)
	for _, c := range []struct {
		class    Class
		reason   string
		set, end []any
	}{
		{ClassUnavailable, "oom", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		{ClassUnavailable, "noreplicas", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		{ClassMisconfigured, "noperm", acl("-set", "-zadd", "-zremrangebyrank"), acl("+@all")},
		{ClassMisconfigured, "noperm", acl("-get", "-mget", "-zcard"), acl("+@all")},
		{ClassMisconfigured, "noperm", acl("-evalsha"), acl("+@all")},
		{ClassMisconfigured, "noperm", acl("resetkeys", "~elsewhere*"), acl("~*")},
		{ClassUnavailable, "readonly", []any{"REPLICAOF", host, port}, []any{"REPLICAOF", "NO", "ONE"}},
	} {
		for _, rule := range callRules(t) {
			take(t, l, "k", rule, 3)
			held := reserve(t, l, "k", rule, 1, true, 0)
			batch := &redisstore.Batch{Node: "n1", Seq: 1, Ops: []report.Report{{Key: s.Keyspace().CounterKey(drain, "b"), Rule: drain, Units: 1, Ahead: arith.Of(drain).Cost(1)}}}
			exec(t, s, batch)
			batch.Prev, batch.Seq = 1, 2
			before := b.dump()
			b.do(c.set...)
			room := c.reason == "oom" && arith.Of(rule).Algorithm == arith.SlidingLog // is made without memory
			errs := map[string]error{}
			for name, do := range writes {
				if name != "Refund" || !room {
					_, errs[name] = do(l, ctx, "k", rule, 1)
				}
			}
			if !room {
				errs["Cancel"] = held.Cancel(ctx)
			}
			out, _ := s.Exec(ctx, []*redisstore.Batch{batch}, nil)
			errs["Exec"] = out[0].Err
			_, errs["Beat"] = s.Beat(ctx, "n1", time.Second, []int{0}, redisstore.BeatOptions{})
			b.do(c.end...)
			for name, err := range errs {
				if class, reason := Classify(err); class != c.class || reason != c.reason {
					t.Errorf("%s of %v: %v %q, want %v %q (%v)", name, rule, class, reason, c.class, c.reason, err)
				}
			}
			if after := b.dump(); after != before {
				t.Errorf("%s left\n%safter\n%s", c.reason, after, before)
			}
			b.do("FLUSHALL")
		}
	}
}
