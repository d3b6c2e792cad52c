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

// ErrBadReply reports a reply that no script of this package gives: another
// program answers, or the client garbles replies. It arrives wrapped.
var ErrBadReply = errors.New("remote: unexpected reply from Redis")

// Class says what may help against an error.
type Class uint8

// The classes. The zero Class is no error.
const (
	// ClassUnavailable may pass by itself: try again later.
	ClassUnavailable Class = iota + 1
	// ClassMisconfigured stays until an operator changes something, such as a
	// password.
	ClassMisconfigured
	// ClassKey concerns one key only.
	ClassKey
)

// String returns the class as one lower-case word.
func (c Class) String() string {
	switch c {
	case 0:
		return "none"
	case ClassUnavailable:
		return "unavailable"
	case ClassMisconfigured:
		return "misconfigured"
	case ClassKey:
		return "key"
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
	// Redis reads no long command from somebody who has not said who it is, and
	// a script's call is long.
	{"ERR Protocol error: unauthenticated", ClassMisconfigured, "noauth"},
	{"WRONGPASS", ClassMisconfigured, "wrongpass"},
	{"ERR invalid password", ClassMisconfigured, "wrongpass"},
	{"ERR AUTH", ClassMisconfigured, "wrongpass"}, // a password although none is set
	{"ERR Client sent AUTH", ClassMisconfigured, "wrongpass"},
	{"NOPERM", ClassMisconfigured, "noperm"},
	{"ERR The user executing the script", ClassMisconfigured, "noperm"},
	// Within a script, by Redis 7.2 and later and by Valkey; after "ERR ".
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
	{"MISCONF", ClassUnavailable, "misconf"}, // its disk is full: no writes until then
	{"NOSCRIPT", ClassUnavailable, "noscript"},
	{"MOVED", ClassUnavailable, "moved"},
	{"ASK", ClassUnavailable, "ask"},
	{"UNBLOCKED", ClassUnavailable, "unblocked"},
	{"ERR max number of clients", ClassUnavailable, "maxclients"},
}

// Reasons are all words that Classify returns. The first one is for what has no word of its
// own.
var Reasons = []string{
	"error", "ask", "busy", "canceled", "closed", "clusterdown", "crossslot", "denied", "dns", "garbage", "loading",
	"masterdown", "maxclients", "misconf", "moved", "noauth", "noperm", "noreplicas", "noscript", "oom", "panic", "pool", "protocol",
	"readonly", "refused", "timeout", "tryagain", "unblocked", "unsupported", "wrongpass", "wrongtype",
}

// Classify sorts an error of this package, or of go-redis, and names its cause
// in one short word that does not change between versions, fit for a metric's
// label: "timeout", "refused", "closed", "oom" … and "error" for all others.
// No error is class 0 and no word.
//
// Redis closes the connection of a client that sends a script without having
// given the password that is wanted; go-redis may notice only when it uses that
// connection again. "noauth" may therefore take turns with "closed".
func Classify(err error) (Class, string) {
	var key *limit.KeyError
	var panicked *panicError
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
	case errors.As(err, &panicked):
		return ClassUnavailable, "panic"
	}
	if class, reason, ok := classifyReply(err); ok {
		return class, reason
	}
	return ClassUnavailable, classifyNetwork(err)
}

// MayHaveRun reports whether a batch that failed with err may have been applied all
// the same: not if no connection came about, nor if Redis has answered with an error.
// A script writes the ledger first, and fails as a whole if that fails.
func MayHaveRun(err error) bool {
	var reply redis.Error
	if err == nil || asError(err, &reply) || errors.Is(err, ErrInvalidBatch) {
		return err == nil
	}
	switch classifyNetwork(err) {
	case "refused", "dns", "pool":
		return false
	}
	return true
}

// classifyReply sorts what Redis itself has said.
func classifyReply(err error) (Class, string, bool) {
	var reply redis.Error
	if !asError(err, &reply) {
		return 0, "", false
	}
	class, reason := classifyText(reply.Error())
	return class, reason, true
}

// classifyText sorts the words of an error.
func classifyText(text string) (Class, string) {
	text = strings.TrimPrefix(text, "-")
	for _, p := range prefixes {
		// Errors inside a script arrive as they are from Redis 7 on, and
		// quoted in another error before that.
		if strings.HasPrefix(text, p.prefix) || strings.Contains(text, "-"+p.prefix+" ") {
			return p.class, p.reason
		}
	}
	// Those that a script has caught and raised again come as a text of its own.
	if inner, ok := strings.CutPrefix(text, "ERR "); ok {
		return classifyText(inner)
	}
	return ClassUnavailable, "error"
}

// classifyNetwork sorts what went wrong on the way.
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

// asError is errors.As with a nil error allowed.
func asError(err error, target *redis.Error) bool { return err != nil && errors.As(err, target) }

// panicError reports that the client panicked.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the client panicked: %v", e.value) }

// wrap puts the package's name in front of what go-redis reports.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("remote: %w", err)
}
