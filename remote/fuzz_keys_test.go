package remote

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// nastyKeys are what users may come up with.
func nastyKeys() map[string]string {
	return map[string]string{
		"empty": "", "nul": "a\x00b", "crlf": "a\r\nSET x y\r\n", "brace": "}x", "braces": "{1}{2}", "utf8": "\xff\xfe",
		"emoji": "🙂", "colon": "a:b", "256": strings.Repeat("k", 256), "257": strings.Repeat("k", 257), "MiB": strings.Repeat("x", 1<<20),
		"only }": "}", "only {": "{", "empty tag": "{}", "tag": "{0}", "nodes' tag": "{nodes}", "tag at the end": "x{5}", "backwards": "}{", "nested": "{{1}}",
		"nuls": "\x00\x00", "newline": "\n", "resp": "*1\r\n$8\r\nFLUSHALL\r\n", "glob": "*", "glob set": "[a-z]*?", "space": " ", "quote": `"'\`, "lua": "]] return 1 --",
		"cut utf8": "\xe2\x82", "surrogate": "\xed\xa0\x80", "looks like a ledger": "node:n1", "looks like a counter": "hl:1:{1}:f:1:f:k:user:1", "looks hashed": strings.Repeat("0", 64),
		"braces MiB": strings.Repeat("}{", 1<<19), "nul MiB": strings.Repeat("\x00", 1<<20),
	}
}

// Each nasty key, also as the name of a rule, has a counter of its own under a short name, with a TTL.
//
// Faults 49, 50: no other key is touched, on a real server either.
func TestNastyKeys(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		b.set("bystander", "x")
		b.set("{nodes}", "x")
		l, want := b.limiter(), []string{"bystander", "{nodes}"}
		for name, key := range nastyKeys() {
			rules := callRules(t)
			if key != "" && len(key) <= arith.MaxNameBytes {
				rules = append(rules, built(t)(limit.SlidingWindow(key, 10, time.Hour)))
			}
			for _, rule := range rules {
				if res := take(t, l, key, rule, 1); !res.Allowed || res.Remaining != 9 {
					t.Errorf("%s key, %v: %s", name, rule, show(res))
				}
				k := l.store.Keyspace().CounterKey(rule, key)
				if len(k) > 600 {
					t.Errorf("%s key, %v: stored at %.80q", name, rule, k)
				}
				want = append(want, k)
			}
		}
		slices.Sort(want)
		got := b.keys()
		slices.Sort(got)
		if len(slices.Compact(want)) != len(want) || !slices.Equal(got, want) {
			t.Errorf("%d keys in Redis, want %d", len(got), len(want))
		}
		if b.get("bystander") != "x" || b.get("{nodes}") != "x" {
			t.Error("a key of somebody else was touched")
		}
		b.everyKeyExpires()
	})
}
