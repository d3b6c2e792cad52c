package redisstore

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

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

// Answered reports whether an error is an answer of Redis, which can be reached then.
func Answered(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
