package redisstore

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Name is the name of a counter in Redis, taken apart: see [Keyspace.CounterKey], which
// puts it together.
type Name struct {
	Text      string // as it is in Redis
	Shard     int
	Algorithm limit.Algorithm
	Rule      string
	// Key is what the caller of the limiter gave, or its SHA-256 in hexadecimal digits if
	// that is longer than [MaxKeyBytes]: then Hashed is set.
	Key    string
	Hashed bool
}

// Pattern returns what the commands of Redis find the names of counters by. What they
// find is to be looked at with [Keyspace.Parse].
func (k Keyspace) Pattern() string {
	escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(k.prefix)
	return escaped + layout + "*}:[fsxl]:*"
}

// Parse takes the name of a counter apart. ok is false for all that [Keyspace.CounterKey]
// does not make.
func (k Keyspace) Parse(text string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(text, k.prefix+layout)
	if !ok {
		return n, false
	}
	shard, rest, _ := strings.Cut(rest, "}:")
	number, fine := parseNumber(shard, int64(k.Shards())-1)
	if !fine || len(rest) < 2 || rest[1] != ':' {
		return n, false
	}
	n = Name{Text: text, Shard: int(number), Algorithm: algorithmOf(rest[0])}
	length, rest, _ := strings.Cut(rest[2:], ":")
	size, fine := parseNumber(length, limit.MaxNameBytes)
	if !fine || n.Algorithm == 0 || size == 0 || int64(len(rest)) < size+3 {
		return n, false
	}
	n.Rule, rest = rest[:size], rest[size:]
	n.Key, n.Hashed = rest[3:], rest[:3] == ":h:"
	if n.Hashed {
		_, err := hex.DecodeString(n.Key)
		return n, err == nil && len(n.Key) == 64 && n.Key == strings.ToLower(n.Key)
	}
	return n, rest[:3] == ":k:" && len(n.Key) <= MaxKeyBytes && k.Shard(n.Key) == n.Shard
}

// algorithmOf is the reverse of letter; 0 if there is none.
func algorithmOf(letter byte) limit.Algorithm {
	switch letter {
	case 'f':
		return limit.AlgorithmFunnel
	case 's':
		return limit.AlgorithmSlidingWindow
	case 'x':
		return limit.AlgorithmFixedWindow
	case 'l':
		return limit.AlgorithmSlidingLog
	}
	return 0
}

// Of reports whether the counter is one of a rule: of its name and algorithm.
func (n Name) Of(rule *limit.Rule) bool {
	return rule.Valid() && n.Rule == rule.Name() && n.Algorithm == rule.Algorithm()
}

// String returns the key and its rule, fit for one line of text: of both the first 64 bytes.
func (n Name) String() string { return escape.Quote(n.Key) + " of " + escape.Quote(n.Rule) }

// AnyRule returns a rule under which a counter can be looked at to find out whether it
// can be used: its numbers are made up. It returns nil if no rule can have that name.
func (n Name) AnyRule() *limit.Rule {
	const some = 1000
	var rule *limit.Rule
	switch n.Algorithm {
	case limit.AlgorithmFunnel:
		rule, _ = limit.Funnel(n.Rule, some, some, time.Hour)
	case limit.AlgorithmSlidingWindow:
		rule, _ = limit.SlidingWindow(n.Rule, some, time.Hour)
	case limit.AlgorithmFixedWindow:
		rule, _ = limit.FixedWindow(n.Rule, some, time.Hour)
	case limit.AlgorithmSlidingLog:
		rule, _ = limit.SlidingLog(n.Rule, some, time.Hour)
	}
	return rule
}
