package inspect

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Name is the parsed name of a counter in Redis. [redisstore.Keyspace.CounterKey] makes such
// names.
type Name struct {
	Text      string // as it is in Redis
	Shard     int
	Algorithm arith.Algorithm
	Rule      string
	// Key is what the caller of the limiter gave, or its SHA-256 in hexadecimal digits if
	// that is longer than [redisstore.MaxKeyBytes]: then Hashed is set.
	Key    string
	Hashed bool
}

// Pattern returns the pattern by which commands of Redis find the names of counters. It
// also matches other names: check each with [Parse].
func Pattern(k redisstore.Keyspace) string {
	escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(k.Prefix())
	return escaped + redisstore.ShardMark + "*}:[" + strings.ReplaceAll(redisstore.Letters, "?", "") + "]:*"
}

// Parse parses the name of a counter. ok is false for a name that
// [redisstore.Keyspace.CounterKey] does not make.
func Parse(k redisstore.Keyspace, text string) (n Name, ok bool) {
	rest, ours := strings.CutPrefix(text, k.Prefix()+redisstore.ShardMark)
	shard, rest, _ := strings.Cut(rest, "}:")
	if !ours || len(rest) < 2 {
		return n, false
	}
	n = Name{Text: text, Algorithm: arith.Algorithm(max(strings.IndexByte(redisstore.Letters, rest[0]), 0))}
	length, rest, _ := strings.Cut(rest[2:], ":")
	size, err := strconv.ParseUint(length, 10, 16)
	if err != nil || uint64(len(rest)) < size+3 {
		return n, false
	}
	n.Shard, _ = strconv.Atoi(shard)
	n.Rule, n.Key, n.Hashed = rest[:size], rest[size+3:], rest[size:size+3] == ":h:"
	// Errors not checked so far show when the name is made again from its parts.
	rule := n.AnyRule()
	if rule == nil || k.CounterKeyIn(n.Shard, rule, redisstore.StoredKey{Text: n.Key, Hashed: n.Hashed}) != text || n.Shard < 0 || n.Shard >= k.Shards() {
		return n, false
	}
	if n.Hashed {
		sum, err := hex.DecodeString(n.Key)
		return n, err == nil && len(sum) == sha256.Size && n.Key == strings.ToLower(n.Key)
	}
	return n, len(n.Key) <= redisstore.MaxKeyBytes && k.Shard(n.Key) == n.Shard
}

// Of reports whether the counter is one of a rule: of its name and algorithm.
func (n Name) Of(rule *limit.Rule) bool {
	return rule.Valid() && n.Rule == rule.Name() && n.Algorithm == arith.Of(rule).Algorithm
}

// String returns the key and the name of its rule for one line of text: of both the first 64 bytes.
func (n Name) String() string { return escape.Quote(n.Key) + " of " + escape.Quote(n.Rule) }

// AnyRule returns a rule with made-up numbers, under which the counter can be read to find
// out whether it can be used. It returns nil if no rule can have that name.
func (n Name) AnyRule() *limit.Rule {
	const some = 1000
	var rule *limit.Rule
	switch n.Algorithm {
	case arith.TokenBucket:
		rule, _ = limit.TokenBucket(n.Rule, some, time.Hour, some)
	case arith.SlidingWindow:
		rule, _ = limit.SlidingWindow(n.Rule, some, time.Hour)
	case arith.FixedWindow:
		rule, _ = limit.FixedWindow(n.Rule, some, time.Hour)
	case arith.CalendarQuota:
		rule, _ = limit.Quota(n.Rule, some, limit.Calendar{Unit: limit.Day})
	case arith.SlidingLog:
		rule, _ = limit.SlidingLog(n.Rule, some, time.Hour)
	}
	return rule
}
