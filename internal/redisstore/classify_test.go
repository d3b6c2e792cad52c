package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

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
		{reply("OOM command not allowed"), false},
		{reply("MOVED 1 127.0.0.1:1"), false},
	} {
		if got := MayHaveRun(Wrap(c.err)); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// The text of an error is without our prefix, and in the user's words.
func TestText(t *testing.T) {
	for text, err := range map[string]error{
		"":                                nil,
		"dial":                            Wrap(errors.New("dial")),
		"NOAUTH Authentication required.": errors.New("NOAUTH Authentication required."),
	} {
		if got := Text(err); got != text {
			t.Errorf("%v: %q, want %q", err, got, text)
		}
	}
	if got := Text(Wrap(errors.New("ERR Protocol error: unauthenticated multibulk length"))); got != "NOAUTH Authentication required." {
		t.Errorf("of a long command: %q", got)
	}
}
