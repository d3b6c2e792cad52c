package rls

import (
	"testing"
	"time"
)

// An example of the README of envoyproxy/ratelimit. Those about which limit a request finds are in package rules.
func TestExample7(t *testing.T) {
	const one, two = "key_1=value_1 user=bkthomps", "key_2=value_2 user=bkthomps"
	w := serve(t, `
domain: example7
descriptors:
  - key: key_1
    value: value_1
    descriptors:
      - {key: user, value: bkthomps, rate_limit: {name: specific_limit, requests_per_unit: 5, unit: second}}
  - key: key_2
    value: value_2
    descriptors:
      - {key: user, value: bkthomps, rate_limit: {replaces: [{name: specific_limit}], requests_per_unit: 10, unit: second}}
`, Options{})
	if n := w.admits("example7", one, two); n != 10 {
		t.Errorf("both: %d, want 10", n)
	}
	if n := w.admits("example7", one); n != 5 {
		t.Errorf("the first, which was replaced: %d, want 5", n)
	}
	w.now.Advance(2 * time.Second)
	if n := w.admits("example7", two); n != 10 {
		t.Errorf("the second: %d, want 10", n)
	}
}
