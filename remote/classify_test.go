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
			errs := map[string]error{"Cancel": held.Cancel(ctx)}
			for name, do := range writes {
				_, errs[name] = do(l, ctx, "k", rule, 1)
			}
			for name, err := range errs {
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
