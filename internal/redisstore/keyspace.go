package redisstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// MaxKeyBytes is the length of the longest key that is part of a name in Redis as it
// is. A longer key is replaced by its SHA-256, so that user input does not decide how
// much memory a name takes.
const MaxKeyBytes = 256

// LayoutVersion is the version of what is kept in Redis. Versions do not see each other's keys.
const LayoutVersion = "1"

// ShardMark comes between the prefix and the number of the shard.
const ShardMark = ":" + LayoutVersion + ":{"

// Keyspace names the keys in Redis. It is a value without state: equal prefix
// and shards give equal names in every process. Build one with [NewKeyspace];
// the zero Keyspace puts everything into shard 0. It is safe for concurrent
// use. The rules given to its methods must be valid.
//
// The shard's number is the hash tag, the part between braces that alone
// decides where a Redis Cluster keeps a key. It comes before the names of rules and
// keys, which may contain braces: only the first pair counts.
type Keyspace struct {
	prefix string
	shards int
}

// NewKeyspace returns the names under a prefix (at most [MaxKeyPrefixBytes]
// bytes without braces; empty means "hl") with 1 to [MaxShards] shards (0 means
// 64). The error names every problem.
func NewKeyspace(prefix string, shards int) (Keyspace, error) {
	prefix, shards = cmp.Or(prefix, DefaultKeyPrefix), cmp.Or(shards, DefaultShards)
	var errs []error
	if len(prefix) > MaxKeyPrefixBytes {
		errs = append(errs, fmt.Errorf("remote: KeyPrefix has %d bytes, at most %d are allowed", len(prefix), MaxKeyPrefixBytes))
	}
	if strings.ContainsAny(prefix, "{}") {
		errs = append(errs, fmt.Errorf("remote: KeyPrefix %.80q contains a brace, which would change where keys live in a cluster", prefix))
	}
	if shards < 1 || shards > MaxShards {
		errs = append(errs, fmt.Errorf("remote: Shards is %d, must be 1 to %d", shards, MaxShards))
	}
	if errs != nil {
		return Keyspace{}, errors.Join(errs...)
	}
	return Keyspace{prefix: prefix, shards: shards}, nil
}

// Prefix returns what every name begins with.
func (k Keyspace) Prefix() string { return k.prefix }

// Shards returns the number of shards.
func (k Keyspace) Shards() int { return max(k.shards, 1) }

// Shard returns the shard, from 0 on, of a key. All rules of a key share it, so
// that a script can decide on several of them together, see [Store.Take].
func (k Keyspace) Shard(key string) int {
	// FNV-1a, written out: every process and every version must agree.
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	// The low bits of FNV are weak for short keys; fold the high ones in
	// before the remainder is taken (the finaliser of MurmurHash3).
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return int(h % uint64(k.Shards()))
}

// CounterKey returns the name in Redis of the counter of a key under a rule.
// Different rule names, algorithms or keys never share a counter: the length of the
// rule's name comes before it, and a key that is stored as a hash is marked as such.
func (k Keyspace) CounterKey(rule *limit.Rule, key string) string {
	stored := StoredKey{Text: key, Hashed: len(key) > MaxKeyBytes}
	if stored.Hashed {
		sum := sha256.Sum256([]byte(key))
		stored.Text = hex.EncodeToString(sum[:])
	}
	return k.CounterKeyIn(k.Shard(key), rule, stored)
}

// StoredKey is a key as counters keep it.
type StoredKey = report.StoredKey

// CounterKeyIn is CounterKey of a key in a given shard. It is hashed if it is longer than
// [MaxKeyBytes].
func (k Keyspace) CounterKeyIn(shard int, rule *limit.Rule, key StoredKey) string {
	b := make([]byte, 0, len(k.prefix)+len(ShardMark)+len(rule.Name())+len(key.Text)+24)
	return string(k.appendCounter(b, shard, rule, key))
}

// appendCounter appends the name of a counter, see CounterKeyIn.
func (k Keyspace) appendCounter(b []byte, shard int, rule *limit.Rule, key StoredKey) []byte {
	name, kind := rule.Name(), ":k:"
	if key.Hashed {
		kind = ":h:"
	}
	b = k.appendShard(b, shard)
	b = append(b, Letters[arith.Of(rule).Algorithm], ':')
	b = strconv.AppendInt(b, int64(len(name)), 10)
	b = append(b, ':')
	b = append(b, name...)
	b = append(b, kind...)
	return append(b, key.Text...)
}

// appendShard appends the beginning that all keys of a shard share.
func (k Keyspace) appendShard(b []byte, shard int) []byte {
	b = append(b, k.prefix...)
	b = append(b, ShardMark...)
	b = strconv.AppendInt(b, int64(shard), 10)
	return append(b, '}', ':')
}

// SeqKey returns the name of the ledger of a node in a shard.
func (k Keyspace) SeqKey(shard int, node string) string {
	return string(k.appendShard(nil, shard)) + "node:" + node
}

// AboutKey returns the name of what a node says about itself, in the shard of the list of nodes.
func (k Keyspace) AboutKey(node string) string {
	return string(k.appendShard(nil, 0)) + "about:" + node
}

// ofLayout returns a name in the first shard that only processes of this layout use.
func (k Keyspace) ofLayout(name string) string {
	return string(k.appendShard(nil, 0)) + name + strconv.Itoa(k.Shards())
}

// NodesKey returns the name of the set of live nodes of this layout. It is in the
// first shard, whose ledger a heartbeat asks for in the same call.
func (k Keyspace) NodesKey() string {
	return k.ofLayout("nodes:")
}

// ChannelKey returns the name of the key that holds the id of the channel for notices, see
// [Keyspace.NoticeChannel]. It is in the first shard, like the set of nodes.
func (k Keyspace) ChannelKey() string {
	return k.ofLayout("channel:")
}

// NoticeChannel returns the channel on which nodes of this layout notify each other which
// counters are used up. The id identifies the database: channels are shared by all
// databases of a server.
func (k Keyspace) NoticeChannel(id string) string {
	return k.ofLayout("notices:") + ":" + id
}

// EchoChannel returns the channel on which a node publishes to itself, to check whether it
// receives messages.
func (k Keyspace) EchoChannel(id, node string) string { return k.NoticeChannel(id) + ":" + node }

// LayoutsKey returns the name of the set of layouts in use, which is the same in all versions.
func (k Keyspace) LayoutsKey() string { return k.prefix + ":{0}:layouts" }

// Layout describes what processes must agree on to share counters, besides the prefix.
// Processes with different layouts share nothing.
func (k Keyspace) Layout() string {
	return "version " + LayoutVersion + " with " + strconv.Itoa(k.Shards()) + " shards"
}

// Letters identify algorithms in names of keys: that of a [limit.Algorithm] has its number as index.
const Letters = "?fsxcl"
