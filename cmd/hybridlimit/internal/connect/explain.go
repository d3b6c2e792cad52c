package connect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/remote"
)

// advice says by reasons of [remote.Classify] what to do.
var advice = map[string]string{
	"refused":     "Is it running there? Name another by --redis or HYBRIDLIMIT_REDIS.",
	"timeout":     "It did not answer in time; see --timeout.",
	"dns":         "The name of the host is not known.",
	"closed":      "It closed the connection: is TLS wanted (rediss://)?",
	"noauth":      "It wants a password: redis://:password@host:6379, or --redis-password-file.",
	"wrongpass":   "The user or the password is wrong.",
	"noperm":      "The user lacks a permission: hybridlimit doctor says which.",
	"moved":       "This server is part of a Cluster: add --cluster.",
	"crossslot":   "This server is part of a Cluster: add --cluster.",
	"clusterdown": "The Cluster is down: hybridlimit doctor says why.",
	"readonly":    "This is a replica: name the master.",
	"oom":         "It is out of memory: hybridlimit doctor says more.",
	"loading":     "It is starting: try again.",
	"maxclients":  "It has as many connections as it may: see maxclients.",
	"unsupported": "Redis 6.2 or later is needed, with all commands that the scripts use.",
}

// Explain returns an error of Redis in words for somebody at a terminal.
func (t *Target) Explain(err error) error {
	if err == nil {
		return nil
	}
	var key *limit.KeyError
	if errors.As(err, &key) {
		// The name is not cut: somebody is to find it. It has some hundred bytes at most, as names of counters have.
		return fmt.Errorf("%q in Redis is no counter of the limiter (%s). Another program has written it: DEL it", key.Key, escape.Plain(key.Reason, 256))
	}
	_, reason := remote.Classify(err)
	text := strings.TrimSuffix(redisstore.Text(err), ".")
	help := advice[reason]
	if reason == "noperm" && strings.Contains(text, "'cluster") {
		help = "On a Cluster the client asks where the slots are: let the user have +cluster." // doctor's does, too
	}
	if help != "" {
		return fmt.Errorf("the Redis at %s: %s. %s", t.Name, text, help)
	}
	return fmt.Errorf("the Redis at %s: %s", t.Name, text)
}
