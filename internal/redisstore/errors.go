package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/limit"
)

// ErrBadReply reports a reply that contradicts the protocol.
var ErrBadReply = errors.New("remote: unexpected reply from Redis")

// Class sorts errors by what can be done about them.
type Class uint8

// The classes. The zero Class is no error.
const (
	ClassUnavailable Class = iota + 1
	ClassMisconfigured
	ClassKey
)

// String returns the class as one lower-case word.
func (c Class) String() string {
	if names := [...]string{"none", "unavailable", "misconfigured", "key"}; int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// prefixes of Redis' errors, with their class and reason. The first match wins.
var prefixes = []struct {
	prefix string
	class  Class
	reason string
}{
	{"NOAUTH", ClassMisconfigured, "noauth"},
	{unread, ClassMisconfigured, "noauth"},
	{"WRONGPASS", ClassMisconfigured, "wrongpass"},
	{"ERR invalid password", ClassMisconfigured, "wrongpass"},
	{"ERR AUTH", ClassMisconfigured, "wrongpass"}, // a password was sent, but none is set
	{"ERR Client sent AUTH", ClassMisconfigured, "wrongpass"},
	{"NOPERM", ClassMisconfigured, "noperm"},
	{"ERR The user executing the script", ClassMisconfigured, "noperm"},
	// In a script, from Redis 7.2 and later and from Valkey; "ERR " is in front.
	{"ACL failure in script", ClassMisconfigured, "noperm"},
	{"DENIED", ClassMisconfigured, "denied"},
	{"CROSSSLOT", ClassMisconfigured, "crossslot"},
	{"ERR unknown command", ClassMisconfigured, "unsupported"},
	{"WRONGTYPE", ClassKey, "wrongtype"},
	{"LOADING", ClassUnavailable, "loading"},
	{"READONLY", ClassUnavailable, "readonly"},
	{"OOM", ClassUnavailable, "oom"},
	{"CLUSTERDOWN", ClassUnavailable, "clusterdown"},
	{"MASTERDOWN", ClassUnavailable, "masterdown"},
	{"NOREPLICAS", ClassUnavailable, "noreplicas"},
	{"BUSY", ClassUnavailable, "busy"},
	{"TRYAGAIN", ClassUnavailable, "tryagain"},
	{"MISCONF", ClassUnavailable, "misconf"}, // it cannot save to disk: no writes until it can
	{"NOSCRIPT", ClassUnavailable, "noscript"},
	{"MOVED", ClassUnavailable, "moved"},
	{"ASK", ClassUnavailable, "ask"},
	{"UNBLOCKED", ClassUnavailable, "unblocked"},
	{"ERR max number of clients", ClassUnavailable, "maxclients"},
}

// Reasons are all words that Classify returns. The first one is for errors without a word of
// their own.
var Reasons = []string{
	"error", "ask", "busy", "canceled", "closed", "clusterdown", "crossslot", "denied", "dns", "garbage", "loading",
	"masterdown", "maxclients", "misconf", "moved", "noauth", "noperm", "noreplicas", "noscript", "oom", "panic", "pool", "protocol",
	"readonly", "refused", "timeout", "tryagain", "unblocked", "unsupported", "wrongpass", "wrongtype",
}

// Classify returns the class of an error, and one word that says what is wrong.
func Classify(err error) (Class, string) {
	var key *limit.KeyError
	var reply redis.Error
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &key):
		if key.Reason == "WRONGTYPE" {
			return ClassKey, "wrongtype"
		}
		return ClassKey, "garbage"
	case errors.Is(err, ErrBadReply):
		return ClassUnavailable, "protocol"
	case errors.Is(err, errPanic):
		return ClassUnavailable, "panic"
	case errors.As(err, &reply):
		return classifyText(reply.Error())
	}
	return ClassUnavailable, classifyNetwork(err)
}

// Answered reports whether an error is an answer of Redis, which can be reached then.
func Answered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// MayHaveRun reports whether a batch that failed with err may have been applied
// nevertheless. It was not if no connection was made, or if Redis answered with an error:
// the script writes the ledger first, and fails as a whole if that fails.
func MayHaveRun(err error) bool {
	if err == nil || Answered(err) {
		return err == nil
	}
	reason := classifyNetwork(err)
	return reason != "refused" && reason != "dns" && reason != "pool"
}

// classifyText classifies the text of an error of Redis.
func classifyText(text string) (Class, string) {
	text = strings.TrimPrefix(text, "-")
	for _, p := range prefixes {
		// From Redis 7 on, errors inside a script arrive unchanged. Before,
		// they are quoted in another error.
		if strings.HasPrefix(text, p.prefix) || strings.Contains(text, "-"+p.prefix+" ") {
			return p.class, p.reason
		}
	}
	// An error that a script has caught and raised again has "ERR " in front.
	if inner, ok := strings.CutPrefix(text, "ERR "); ok {
		return classifyText(inner)
	}
	return ClassUnavailable, "error"
}

// classifyNetwork returns the reason of an error that did not come from Redis.
func classifyNetwork(err error) string {
	var network net.Error
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return "pool"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &dns):
		return "dns"
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, redis.ErrClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "closed"
	case strings.HasPrefix(err.Error(), "redis: can't parse"):
		return "protocol"
	}
	return "error"
}

// errPanic reports that the client panicked. It arrives wrapped.
var errPanic = errors.New("the client panicked")

// Wrap puts the name of package remote in front of an error.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("remote: %w", err)
}

// unread is how Redis refuses the long command of a client that sends no password: in words of
// its protocol.
const unread = "ERR Protocol error: unauthenticated"

// Text returns the text of an error without the prefix of Wrap, in words that say what is
// missing. It is empty for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	text := strings.TrimPrefix(err.Error(), "remote: ")
	if strings.HasPrefix(text, unread) {
		return "NOAUTH Authentication required."
	}
	return text
}

// refusals say by reasons of [Classify] what Redis refuses this program for, and what to do. They are
// those that only an operator can end.
var refusals = map[string]string{
	"noauth":      "it wants a password (Password in the client's options, or redis://:password@host:6379)",
	"wrongpass":   "it does not know this user or password",
	"noperm":      "the user may not use what the limiter needs: see the permissions in docs/redis.md",
	"denied":      "it is in protected mode, and lets in only programs of its own machine until it has a password",
	"crossslot":   "it is part of a Cluster, and the client is for a single server",
	"unsupported": "it lacks a command that the limiter needs: Redis 6.2 or later is wanted, with no command renamed",
}

// Refusal says why Redis refuses this program, without a full stop. It is empty for a reason that ends
// without an operator.
func Refusal(reason string) string {
	if text := refusals[reason]; text != "" {
		return "Redis refuses this program: " + text
	}
	return ""
}
