package doctor

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inspect"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// trial is a command that was tried, and the error.
type trial struct {
	command string
	err     error
}

const nothing = "return 1" // a script

// Commands are what the scripts and the limiters send, each so that it writes nothing: the
// key is not there. docs/redis.md has the same list, and a test compares what is really sent.
var commands = []struct {
	name   string
	before []any // the key
	after  []any
}{
	{"evalsha", []any{hash(nothing), 1}, nil},
	{"eval", []any{nothing, 1}, nil},
	{"get", nil, nil},
	{"mget", nil, nil},
	{"set", nil, []any{"", "xx", "px", 1000}},
	{"pexpire", nil, []any{1000}},
	{"pttl", nil, nil},
	{"zadd", nil, []any{"xx", 1, "x"}},
	{"zrem", nil, []any{"x"}},
	{"zcard", nil, nil},
	{"zcount", nil, []any{0, 1}},
	{"zrange", nil, []any{0, 0}},
	{"zremrangebyrank", nil, []any{0, 0}},
	{"zremrangebyscore", nil, []any{0, 1}},
}

func hash(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// tryCommands sends each command once. Who forbids one, or has renamed it, says so before
// anything else. ACL DRYRUN would do the same, but only for those who may use ACL, and only
// by Redis 7 and later.
func (f *facts) tryCommands(ctx context.Context, server redis.UniversalClient, key string) {
	try := func(name string, args ...any) {
		err := server.Do(ctx, append([]any{name}, args...)...).Err()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		f.tried = append(f.tried, trial{name, err})
	}
	try("time")
	for _, c := range commands {
		args := append([]any{}, c.before...)
		args = append(args, key)
		try(c.name, append(args, c.after...)...)
	}
	limiters := f.tried
	f.tried = nil
	try("dbsize")
	try("scan", 0, "count", 1)
	f.tried, f.tools = limiters, f.tried
}

// opens reports whether a server lets in who shows no password. That ours is right does not
// say so: it may be of a user besides the default one, who needs none.
func opens(ctx context.Context, server redis.UniversalClient, key string) bool {
	c, single := server.(*redis.Client)
	if !single {
		return false
	}
	o := *c.Options()
	o.Username, o.Password, o.CredentialsProvider, o.CredentialsProviderContext, o.StreamingCredentialsProvider = "", "", nil, nil, nil
	o.DB, o.PoolSize, o.MinIdleConns = 0, 1, 0
	stranger := redis.NewClient(&o)
	defer stranger.Close()
	err := stranger.Do(ctx, "set", key, "", "xx", "px", 1000).Err() // of a key that is not there: writes nothing
	if err == nil || errors.Is(err, redis.Nil) {
		return true
	}
	switch (trial{"set", err}).reason() {
	case "", "readonly", "oom", "misconf", "noreplicas":
		return true // another answer than to those who may not
	}
	return false
}

// probeKey returns the name of a key that is not there, as far as possible one that lives
// on a given server.
func probeKey(ctx context.Context, rdb redis.UniversalClient, addr string, keys redisstore.Keyspace) string {
	const node = "doctor"
	cluster, ok := rdb.(*redis.ClusterClient)
	for shard := range keys.Shards() {
		if !ok {
			break
		}
		key := keys.SeqKey(shard, node)
		if c, err := cluster.MasterForKey(ctx, key); err == nil && c.Options().Addr == addr {
			return key
		}
	}
	return keys.SeqKey(0, node)
}

// tryScripts runs the scripts that read, one of each kind of counter.
func tryScripts(ctx context.Context, survey *inspect.Survey) error {
	keys := survey.Keyspace()
	var looks []inspect.Look
	for _, n := range names() {
		rule := n.AnyRule()
		name, _ := inspect.Parse(keys, keys.CounterKey(rule, "doctor"))
		looks = append(looks, inspect.Look{Name: name, Rule: rule})
	}
	for _, seen := range survey.Peek(ctx, looks) {
		if class, _ := redisstore.Classify(seen.Err); class != 0 && class != redisstore.ClassKey {
			return seen.Err
		}
	}
	return nil
}

// reasonOf returns the word for what a trial has failed with; empty if it has not, or only
// because another server has the key, or does not have the script.
func (t trial) reason() string {
	_, reason := redisstore.Classify(t.err)
	switch reason {
	case "moved", "ask", "noscript", "wrongtype":
		return ""
	}
	return reason
}

// failed returns the trials with one of the reasons.
func (f *facts) failed(reasons ...string) []trial { return failed(f.tried, reasons...) }

func failed(tried []trial, reasons ...string) (list []trial) {
	for _, t := range tried {
		for _, reason := range reasons {
			if t.reason() == reason {
				list = append(list, t)
			}
		}
	}
	return list
}

// names returns a counter of each algorithm.
func names() (list []inspect.Name) {
	for _, a := range []arith.Algorithm{arith.TokenBucket, arith.SlidingWindow, arith.FixedWindow, arith.CalendarQuota, arith.SlidingLog} {
		list = append(list, inspect.Name{Rule: "doctor", Algorithm: a})
	}
	return list
}
