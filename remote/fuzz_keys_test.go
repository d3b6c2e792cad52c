package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/limit"
)

// slot is the hash slot of a key as the Redis Cluster specification defines it:
// CRC-16 (XMODEM: polynomial 0x1021, initial value 0) of what is between the
// first '{' and the first '}' after it, if that is anything, or of all.
func slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	crc := uint16(0)
	for _, c := range []byte(key) {
		crc ^= uint16(c) << 8
		for range 8 {
			high := crc&0x8000 != 0
			if crc <<= 1; high {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}

// The values that the specification gives, or that redis-server does.
func TestSlotIsThatOfTheSpecification(t *testing.T) {
	for key, want := range map[string]uint16{"123456789": 0x31c3, "foo": 12182, "{foo}bar": 12182, "foo{}{bar}": slot("foo{}{bar}")} {
		if got := slot(key); got != want {
			t.Errorf("slot of %q: %d, want %d", key, got, want)
		}
	}
	b := onReal(t, "--cluster-enabled", "yes")
	for name, key := range nastyKeys() {
		got, err := b.rdb.ClusterKeySlot(ctx, key).Result()
		if err != nil || uint16(got) != slot(key) {
			t.Errorf("%s key: redis says slot %d, %v, want %d", name, got, err, slot(key))
		}
	}
}

// extremeKeys are what users may come up with.
var extremeKeys = map[string]string{
	"empty": "", "nul": "a\x00b", "crlf": "a\r\nSET x y\r\n", "brace": "}x", "braces": "{1}{2}", "utf8": "\xff\xfe",
	"emoji": "🙂", "colon": "a:b", "256": strings.Repeat("k", 256), "257": strings.Repeat("k", 257), "MiB": strings.Repeat("x", 1<<20),
}

// Fault 49: stored under a short name of their own, each with a TTL.
func TestExtremeKeys(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		l := b.limiter()
		for name, key := range extremeKeys {
			for _, rule := range []*limit.Rule{
				funnel(t, 5, 1, time.Hour), sliding(t, 5, time.Hour, 10), fixed(t, 5, time.Hour), daily(t, 5), slidingLog(t, 5, time.Hour),
			} {
				if got := take(t, l, key, rule, 1); !got.Allowed || got.Remaining != 4 {
					t.Errorf("%s key, %v: %s", name, rule, show(got))
				}
				if k := l.store.Keyspace().CounterKey(rule, key); len(k) > 600 || b.rdb.Exists(ctx, k).Val() != 1 {
					t.Errorf("%s key, %v: not at %.80q", name, rule, k)
				}
			}
		}
		if n := len(b.keys()); n != 5*len(extremeKeys) {
			t.Errorf("%d keys in Redis, want %d", n, 5*len(extremeKeys))
		}
		b.everyKeyExpires()
	})
}

// nastyKeys returns extremeKeys and more of their kind.
func nastyKeys() map[string]string {
	all := map[string]string{
		"only }": "}", "only {": "{", "empty tag": "{}", "tag": "{0}", "nodes' tag": "{nodes}", "tag at the end": "x{5}", "backwards": "}{", "nested": "{{1}}",
		"nuls": "\x00\x00", "newline": "\n", "resp": "*1\r\n$8\r\nFLUSHALL\r\n", "glob": "*", "glob set": "[a-z]*?", "space": " ", "quote": `"'\`, "lua": "]] return 1 --",
		"cut utf8": "\xe2\x82", "surrogate": "\xed\xa0\x80", "looks like a ledger": "node:n1", "looks like a counter": "hl:1:{1}:f:1:f:k:user:1", "looks hashed": strings.Repeat("0", 64),
		"braces MiB": strings.Repeat("}{", 1<<19), "nul MiB": strings.Repeat("\x00", 1<<20),
	}
	maps.Copy(all, extremeKeys)
	return all
}

// Each nasty key, also as the name of a rule, has a counter of
// its own in the slot of its shard.
//
// Faults 49, 50: no other key is touched, on a real server either.
func TestNastyKeys(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		b.set("bystander", "x")
		b.set("{nodes}", "x")
		l := b.limiter()
		var want []string
		for name, key := range nastyKeys() {
			rules := []*limit.Rule{funnel(t, 5, 1, time.Hour), slidingLog(t, 5, time.Hour)}
			if key != "" && len(key) <= limit.MaxNameBytes {
				rules = append(rules, built(t)(limit.SlidingWindow(key, 5, time.Hour)))
			}
			for _, rule := range rules {
				if res := take(t, l, key, rule, 1); !res.Allowed || res.Remaining != 4 {
					t.Errorf("%s key, %v: %s", name, rule, show(res))
				}
				k := l.store.Keyspace().CounterKey(rule, key)
				if got := slot(k); got != slot(l.store.Keyspace().SeqKey(l.store.Keyspace().Shard(key), "n")) {
					t.Errorf("%s key, %v: slot %d is not its shard's", name, rule, got)
				}
				want = append(want, k)
			}
		}
		want = append(want, "bystander", "{nodes}")
		slices.Sort(want)
		got := b.keys()
		slices.Sort(got)
		if len(slices.Compact(want)) != len(want) || !slices.Equal(got, want) {
			t.Errorf("%d keys in Redis, want %d", len(got), len(want))
		}
		if b.get("bystander") != "x" || b.get("{nodes}") != "x" {
			t.Error("a key of somebody else was touched")
		}
	})
}

// FuzzKeys asks for two keys under two rules, whatever bytes they are made of.
// Each pair of a rule's name and a key counts by itself, at the one key of Redis
// that is its own, and nothing else is written.
//
// Faults 49, 50, 51: different parts, different counters.
// CI runs it 10000 times.
func FuzzKeys(f *testing.F) {
	for _, key := range nastyKeys() {
		f.Add("a", key[:min(len(key), 600)], "a", key[:min(len(key), 600)]+"x", uint8(len(key)))
	}
	f.Add("a", "b", "a:b", "c", uint8(0))
	f.Add("a:k", "b", "a", "k:b", uint8(1))
	f.Add("1:a", "}", "1", "{a}", uint8(2))
	f.Add("a", "same", "a", "same", uint8(3))
	f.Add("f", strings.Repeat("k", 257), "f", strings.Repeat("k", 258), uint8(0))
	long := strings.Repeat("k", 300)
	sum := sha256.Sum256([]byte(long))
	f.Add("f", long, "f", hex.EncodeToString(sum[:]), uint8(0)) // the name under which the long one is kept
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(m.Close)
	rdb := redis.NewClient(options(m.Addr()))
	f.Cleanup(func() { rdb.Close() })
	f.Fuzz(func(t *testing.T, name1, key1, name2, key2 string, kind uint8) {
		mk := []func(string) (*limit.Rule, error){
			func(n string) (*limit.Rule, error) { return limit.Funnel(n, 5, 1, time.Hour) },
			func(n string) (*limit.Rule, error) { return limit.SlidingWindow(n, 5, 24*time.Hour) },
			func(n string) (*limit.Rule, error) { return limit.SlidingLog(n, 5, time.Hour) },
		}[kind%3]
		r1, err1 := mk(name1)
		r2, err2 := mk(name2)
		if err1 != nil || err2 != nil {
			t.Skip()
		}
		m.FlushAll()
		l, err := New(rdb, Options{Shards: 1 + int(kind/3)%3, CommandTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		take(t, l, key1, r1, 2)
		same := name1 == name2 && key1 == key2
		want := int64(4)
		if same {
			want = 2
		}
		if res := take(t, l, key2, r2, 1); res.Remaining != want {
			t.Errorf("(%q, %q) after (%q, %q): %s", name2, key2, name1, key1, show(res))
		}
		own := []string{l.store.Keyspace().CounterKey(r1, key1), l.store.Keyspace().CounterKey(r2, key2)}
		slices.Sort(own)
		if own = slices.Compact(own); !slices.Equal(m.Keys(), own) || same != (len(own) == 1) {
			t.Errorf("%q in Redis, want %q", m.Keys(), own)
		}
		if s := l.store.Keyspace().Shard(key1); slot(l.store.Keyspace().CounterKey(r1, key1)) != slot(l.store.Keyspace().SeqKey(s, "n")) {
			t.Errorf("%q is not in the slot of shard %d", l.store.Keyspace().CounterKey(r1, key1), s)
		}
	})
}
