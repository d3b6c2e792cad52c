//go:build !race

package local

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Not under the race detector: it makes pools lose items, and
// they are allocated anew.
func TestResidentKeyAllocatesNothing(t *testing.T) {
	l := newLimiter(t, Options{})
	rules := append(everyRule(t, 1000), limit.Must(limit.SlidingWindowBuckets("many buckets", 1000, time.Minute, 30)),
		limit.Must(limit.TokenBucket("too large for a lease", 1<<30, time.Hour, 1<<40)))
	for _, key := range []string{"k", strings.Repeat("k", 40), strings.Repeat("k", 300)} {
		for _, rule := range rules {
			l.Take(key, rule, 1)
		}
		for _, rule := range rules {
			for name, f := range map[string]func(){
				"Allow": func() { l.Allow(key, rule) },
				"Take":  func() { l.Take(key, rule, 1) },
				"Peek":  func() { l.Peek(key, rule) },
				"TakeAll": func() {
					l.TakeAll(limit.Check{Key: key, Rule: rule, N: 1}, limit.Check{Key: key, Rule: rules[0], N: 2},
						limit.Check{Key: key, Rule: rules[1], N: 1}, limit.Check{Key: key, Rule: rule, N: 1})
				},
			} {
				if n := testing.AllocsPerRun(2000, f); n != 0 {
					t.Errorf("%v, %d bytes: %s allocates %v times", rule, len(key), name, n)
				}
			}
		}
	}
}
