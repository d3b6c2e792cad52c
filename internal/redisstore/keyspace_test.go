package redisstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The names and the placement are part of the format: a change of either one
// would make two versions count apart.
//
// Fault 30: the version is part of every name.
func TestKeysAreFixed(t *testing.T) {
	k := limit.Must(NewKeyspace("", 0))
	rule := funnel(t, 1, 1, time.Second)
	for _, c := range []struct{ got, want string }{
		{k.CounterKey(rule, "user:1"), "hl:1:{1}:f:1:f:k:user:1"},
		{k.CounterKey(slidingLog(t, 1, time.Second), "user:1"), "hl:1:{1}:l:1:l:k:user:1"}, // all rules of a key are in one shard
		{k.CounterKey(rule, ""), "hl:1:{38}:f:1:f:k:"},
		{k.SeqKey(5, "n1"), "hl:1:{5}:node:n1"},
		{k.NodesKey(), "hl:1:{0}:nodes:64"},
		{k.LayoutsKey(), "hl:{0}:layouts"},
		{k.Layout(), "version 1 with 64 shards"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestShardsAreEven(t *testing.T) {
	k := limit.Must(NewKeyspace("", 64))
	counts := make([]int, 64)
	const n = 64_000
	for i := range n {
		counts[k.Shard("user:"+strconv.Itoa(i))]++
	}
	for shard, c := range counts {
		if c < n/64*7/10 || c > n/64*13/10 {
			t.Errorf("shard %d holds %d of %d keys", shard, c, n)
		}
	}
}

func TestOptionsReportEverything(t *testing.T) {
	_, err := NewStore(nil, Options{KeyPrefix: strings.Repeat("{", 65), Shards: 1025, CommandTimeout: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"nil", "65 bytes", "brace", "1025", "CommandTimeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not mention %q", err, part)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "remote: ") {
			t.Errorf("no prefix: %q", line)
		}
	}
	if _, err := NewKeyspace("a", -1); err == nil {
		t.Error("-1 shards passed")
	}
	if (Keyspace{}).Shard("x") != 0 {
		t.Error("the zero Keyspace has more than one shard")
	}
}

// hashTag returns what a Redis Cluster hashes of a key.
func hashTag(key string) string {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			return key[i+1 : i+1+j]
		}
	}
	return key
}

// Faults 49, 50, 51: other names or keys never share a counter, and the hash tag is the shard's.
func FuzzCounterKey(f *testing.F) {
	f.Add("a", "b", "a:b", "c")
	f.Add("a:k", "b", "a", "k:b")
	f.Add("1:a", "}", "1", "{a}")
	f.Add("f", strings.Repeat("k", 257), "f", strings.Repeat("k", 258))
	f.Add("f", "", "f", "{}")
	f.Add("f", "}{", "f", "{nodes}")
	f.Add("f", "x{5}", "f", "node:n1")
	long := strings.Repeat("k", 300)
	sum := sha256.Sum256([]byte(long))
	f.Add("f", long, "f", hex.EncodeToString(sum[:])) // the name under which the long one is kept
	k := Keyspace{prefix: "hl", shards: 64}
	f.Fuzz(func(t *testing.T, name1, key1, name2, key2 string) {
		r1, err1 := limit.FixedWindow(name1, 1, time.Second)
		r2, err2 := limit.FixedWindow(name2, 1, time.Second)
		other, err3 := limit.SlidingLog(name1, 1, time.Second)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Skip()
		}
		c1, c2 := k.CounterKey(r1, key1), k.CounterKey(r2, key2)
		if same := name1 == name2 && key1 == key2; same != (c1 == c2) {
			t.Errorf("(%q, %q) and (%q, %q) give %q and %q", name1, key1, name2, key2, c1, c2)
		}
		if c1 == k.CounterKey(other, key1) {
			t.Errorf("two algorithms share %q", c1)
		}
		if tag := hashTag(c1); tag != hashTag(k.SeqKey(k.Shard(key1), "n")) {
			t.Errorf("the hash tag of %q is %q", c1, tag)
		}
	})
}
