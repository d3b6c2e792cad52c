package bench

import (
	"context"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/hybridlimit/hybridlimit/limit"
)

// BenchmarkTake: a check with the whole answer, by algorithm.
func BenchmarkTake(b *testing.B) {
	for _, rule := range []*limit.Rule{generous, window} {
		l := open(b, nil)
		b.Run("hybrid-alone/"+rule.Algorithm().String(), func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool { return l.Take(key, rule, 1).Allowed })
		})
	}
}

// BenchmarkPreload: a thousand keys of another node, from a Redis embedded in
// this process.
func BenchmarkPreload(b *testing.B) {
	l := open(b, dial(miniredis.RunT(b).Addr()))
	keys, next := make([]string, 1000), 0
	for b.Loop() {
		for i := range keys {
			keys[i] = strconv.Itoa(next)
			next++
		}
		if err := l.Preload(context.Background(), keys, window); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCalls: the other calls, each on a key that it leaves as it was.
func BenchmarkCalls(b *testing.B) {
	rules := []*limit.Rule{generous, window}
	if !*full {
		rules = rules[:1]
	}
	for _, rule := range rules {
		l := open(b, nil)
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/at-most", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				granted, _ := l.TakeAtMost(key, rule, 1)
				return granted > 0
			})
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/set", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool { return l.Set(context.Background(), key, rule, 1) == nil })
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/dry-run", func(b *testing.B) {
			dry := rule.DryRun()
			measure(b, keyNames(1), func(key string) bool { return l.Allow(key, dry) })
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/take-all-of-3", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				return l.TakeAll(limit.Check{Key: key, Rule: rule, N: 1}, limit.Check{Key: key, Rule: hourly, N: 1},
					limit.Check{Key: "tenant", Rule: rule, N: 1}).Allowed
			})
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/reserve-and-cancel", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				r := l.Reserve(key, rule)
				r.Cancel()
				return r.OK()
			})
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/wait", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool { return l.Wait(context.Background(), key, rule) == nil })
		})
		b.Run("hybrid-alone/"+rule.Algorithm().String()+"/take-and-refund", func(b *testing.B) {
			measure(b, keyNames(1), func(key string) bool {
				l.Allow(key, rule)
				return l.Refund(key, rule, 1) > 0
			})
		})
	}
}
