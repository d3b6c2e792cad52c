package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/limit"
)

// oneOfEach returns a rule of each algorithm.
func oneOfEach(t testing.TB, name string) []*limit.Rule {
	t.Helper()
	var list []*limit.Rule
	for i, letter := range redisstore.Letters {
		a := arith.Algorithm(i)
		if letter == '?' {
			continue
		}
		rule := Name{Rule: name, Algorithm: a}.AnyRule()
		if rule == nil || rule.Name() != name || arith.Of(rule).Algorithm != a {
			t.Fatalf("%v of %q: %v", a, name, rule)
		}
		list = append(list, rule)
	}
	return list
}

func space(t testing.TB, prefix string, shards int) redisstore.Keyspace {
	t.Helper()
	keys, err := redisstore.NewKeyspace(prefix, shards)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// What a name is made of is found in it again, whatever is in there.
func TestNameIsTakenApart(t *testing.T) {
	for _, keys := range []redisstore.Keyspace{space(t, "hl", 1), space(t, "hl", 64), space(t, "a:1:b", 1024), space(t, `*?[x]\^`, 7)} {
		for _, name := range []string{"api", ":", "}:f:3:", "a:k:b", ":h:", strings.Repeat("n", arith.MaxNameBytes), "\x00\xff"} {
			for _, rule := range oneOfEach(t, name) {
				for _, key := range []string{"", "user", "{a}:b", ":k:", "\xff\x00", strings.Repeat("x", redisstore.MaxKeyBytes), strings.Repeat("y", redisstore.MaxKeyBytes+1)} {
					text := keys.CounterKey(rule, key)
					n, ok := Parse(keys, text)
					if !ok || n.Text != text || !n.Of(rule) || n.Shard != keys.Shard(key) && !n.Hashed {
						t.Fatalf("%q: %+v, %v", text, n, ok)
					}
					if n.Hashed != (len(key) > redisstore.MaxKeyBytes) || !n.Hashed && n.Key != key {
						t.Errorf("%q: key %q, %v", text, n.Key, n.Hashed)
					}
					if again := keys.CounterKeyIn(n.Shard, n.AnyRule(), redisstore.StoredKey{Text: n.Key, Hashed: n.Hashed}); again != text {
						t.Errorf("%q became %q", text, again)
					}
				}
			}
		}
	}
}

func TestNameOfSomethingElse(t *testing.T) {
	keys := space(t, "hl", 4)
	shard := func(key string) string { return fmt.Sprintf("hl:1:{%d}:", keys.Shard(key)) }
	for _, text := range []string{
		"", "hl", "hl:1:{", "hl:1:{0}", "hl:1:{0}:", "hl:1:{0}:f", "hl:1:{0}:f:", "hl:1:{0}:f:3", "hl:1:{0}:f:3:api",
		"hl:2:{0}:f:3:api:k:u", "other:1:{0}:f:3:api:k:u", keys.NodesKey(), keys.SeqKey(1, "n"), keys.LayoutsKey(),
		shard("u") + "q:3:api:k:u", shard("u") + "f:03:api:k:u", shard("u") + "f:0::k:u", shard("u") + "f:4:api:k:u", shard("u") + "f:-1:api:k:u",
		shard("u") + "f:9999999999999999999999:api:k:u", shard("u") + "f:3:api:h:u", shard("u") + "f:3:api:h:" + strings.Repeat("A", 64), shard("u") + "f:3:api:x:u",
		"hl:1:{9}:f:3:api:k:u", "hl:1:{-1}:f:3:api:h:" + strings.Repeat("a", 64), "hl:1:{9}:f:3:api:h:" + strings.Repeat("a", 64), "hl:1:{x}:f:3:api:h:" + strings.Repeat("a", 64), "hl:1:{00}:f:3:api:k:u", shard("u") + "f:3:api:k:" + strings.Repeat("u", redisstore.MaxKeyBytes+1),
	} {
		if n, ok := Parse(keys, text); ok {
			t.Errorf("%q is taken for %+v", text, n)
		}
	}
	wrong := "hl:1:{" + string(rune('0'+(keys.Shard("u")+1)%4)) + "}:f:3:api:k:u"
	if _, ok := Parse(keys, wrong); ok {
		t.Errorf("%q is in the wrong shard", wrong)
	}
	if rule := (Name{Rule: "", Algorithm: arith.TokenBucket}).AnyRule(); rule != nil {
		t.Errorf("a rule without a name: %v", rule)
	}
}

// Whatever is taken for a name is what CounterKey makes.
func FuzzName(f *testing.F) {
	keys := space(f, "hl", 4)
	for _, rule := range oneOfEach(f, "api") {
		f.Add(keys.CounterKey(rule, "user"))
		f.Add(keys.CounterKey(rule, strings.Repeat("y", 300)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := Parse(keys, text)
		if !ok {
			return
		}
		if again := keys.CounterKeyIn(n.Shard, n.AnyRule(), redisstore.StoredKey{Text: n.Key, Hashed: n.Hashed}); again != text {
			t.Errorf("%q became %q", text, again)
		}
	})
}
