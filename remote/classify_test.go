package remote

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What Redis refuses has one name, whichever call it was for.
func TestClassifyEveryCall(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, binary string) { classifyEveryCall(t, onServer(t, binary)) })
}

// failures returns what the calls fail with that write to one counter.
func failures(l *Limiter, rule *limit.Rule, held *Reservation) map[string]error {
	all := map[string]error{}
	_, all["Take"] = l.Take(ctx, "k", rule, 1)
	_, all["TakeAll"] = l.TakeAll(ctx, limit.Check{Key: "k", Rule: rule, N: 1})
	all["Set"] = l.Set(ctx, "k", rule, 2)
	_, all["Refund"] = l.Refund(ctx, "k", rule, 1)
	all["Cancel"] = held.Cancel(ctx)
	return all
}

func classifyEveryCall(t *testing.T, b *backend) {
	l := b.limiter()
	host, port, _ := strings.Cut(b.addr, ":")
	for _, c := range []struct {
		class    Class
		reason   string
		set, end []any
	}{
		{ClassUnavailable, "oom", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		{ClassUnavailable, "noreplicas", []any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		{ClassMisconfigured, "noperm", []any{"ACL", "SETUSER", "default", "-set", "-zadd", "-zremrangebyrank"}, []any{"ACL", "SETUSER", "default", "+@all"}},
		{ClassMisconfigured, "noperm", []any{"ACL", "SETUSER", "default", "-get", "-zcard"}, []any{"ACL", "SETUSER", "default", "+@all"}},
		{ClassUnavailable, "readonly", []any{"REPLICAOF", host, port}, []any{"REPLICAOF", "NO", "ONE"}},
	} {
		for _, rule := range callRules(t) {
			take(t, l, "k", rule, 3)
			held := reserve(t, l, "k", rule, 1, true, 0)
			b.do(c.set...)
			for name, err := range failures(l, rule, held) {
				if c.reason == "oom" && rule.Algorithm() == limit.AlgorithmSlidingLog && (name == "Refund" || name == "Cancel") {
					continue // that makes room
				}
				if class, reason := Classify(err); class != c.class || reason != c.reason {
					t.Errorf("%s of %v: %v %q, want %v %q (%v)", name, rule, class, reason, c.class, c.reason, err)
				}
			}
			b.do(c.end...)
			b.do("FLUSHALL")
		}
	}
}
