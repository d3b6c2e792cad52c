//go:build !race

package local

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Not under the race detector: it makes the cache's pools lose items, and
// they are allocated anew.
func TestResidentKeyAllocatesNothing(t *testing.T) {
	l := newLimiter(t, Options{})
	rules := append(everyRule(t, 1000), limit.Must(limit.SlidingWindowBuckets("many buckets", 1000, time.Minute, 30)))
	for _, rule := range rules {
		l.Take("k", rule, 1)
	}
	settle(t, l.table)
	for _, rule := range rules {
		k := l.Key("k", rule)
		for name, f := range map[string]func(){
			"Allow": func() { l.Allow("k", rule) },
			"Take":  func() { l.Take("k", rule, 1) },
			"Peek":  func() { l.Peek("k", rule) },
			"Key":   func() { k.Allow(); k.Take(1); k.Peek() },
			"TakeAll": func() {
				l.TakeAll(limit.Check{Key: "k", Rule: rule, N: 1}, limit.Check{Key: "k", Rule: rules[0], N: 2},
					limit.Check{Key: "k", Rule: rules[1], N: 1}, limit.Check{Key: "k", Rule: rule, N: 1})
			},
		} {
			if n := testing.AllocsPerRun(2000, f); n != 0 {
				t.Errorf("%v: %s allocates %v times", rule, name, n)
			}
		}
	}
}
