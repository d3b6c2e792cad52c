//go:build !race

package local

import "testing"

// Not under the race detector: it makes the cache's pools lose items, and
// they are allocated anew.
func TestResidentKeyAllocatesNothing(t *testing.T) {
	l := newLimiter(t, Options{})
	for _, rule := range everyRule(t, 1000) {
		l.Allow("k", rule)
		settle(t, l.table)
		for name, f := range map[string]func(){
			"Allow": func() { l.Allow("k", rule) },
			"Take":  func() { l.Take("k", rule, 1) },
			"Peek":  func() { l.Peek("k", rule) },
		} {
			if n := testing.AllocsPerRun(2000, f); n != 0 {
				t.Errorf("%v: %s allocates %v times", rule, name, n)
			}
		}
	}
}
