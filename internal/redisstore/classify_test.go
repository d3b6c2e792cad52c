package redisstore

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

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

// What is not permitted has one name, whoever says so and in which words.
func TestClassifyPermissions(t *testing.T) {
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command",                                       // 6.2 and 7.0
		"NOPERM User guest has no permissions to run the 'evalsha' command",                                      // 7.2 and later, Valkey
		"NOPERM No permissions to access a key",                                                                  // 7.2 and later, Valkey
		"ERR The user executing the script can't run this command or subcommand script: 4f, on @user_script:62.", // 6.2 and 7.0
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 4f, on @user_script:62.",
		"ERR ACL failure in script: User default has no permissions to run the 'set' command script: 6e1f, on @user_script:62.", // 7.2 and later, Valkey
		"ERR ACL failure in script: User default has no permissions to access the 'hl:1:{5}:f:3:api:k:u' key script: 6e1f, on @user_script:62.",
		"ERR ERR ACL failure in script: No permissions to access a key script: 6e1f, on @user_script:1.",
		"-ERR ACL failure in script: User default has no permissions to run the 'zadd' command",
	} {
		if class, reason := Classify(reply(text)); class != ClassMisconfigured || reason != "noperm" {
			t.Errorf("%s: %v %q", text, class, reason)
		}
	}
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

// answer is an error that Redis has sent.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// Only what was sent, and not answered, may have been executed.
func TestMayHaveRun(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{io.EOF, true},
		{syscall.ECONNRESET, true},
		{context.DeadlineExceeded, true},
		{context.Canceled, true},
		{fmt.Errorf("%w: nonsense", ErrBadReply), true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false},
		{redis.ErrPoolTimeout, false},
		{answer("OOM command not allowed"), false},
		{answer("MOVED 1 127.0.0.1:1"), false},
		{ErrInvalidBatch, false},
	} {
		if got := MayHaveRun(wrap(c.err)); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
