package limit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func ExampleJoinKey() {
	fmt.Println(JoinKey("alice", "reply"))
	fmt.Println(JoinKey("a:b", "c") == JoinKey("a", "b:c"))
	// Output:
	// 5:alice5:reply
	// false
}

func ExampleRule_DryRun() {
	rule := Must(SlidingWindow("search", 100, time.Minute))
	fmt.Println(rule.DryRun())
	// Output: sliding-window "search": 100 per minute (dry run)
}

// split undoes JoinKey, which shows that it is injective.
func split(key string) (parts []string) {
	for key != "" {
		digits, rest, _ := strings.Cut(key, ":")
		n := 0
		for _, d := range digits {
			n = n*10 + int(d-'0')
		}
		parts, key = append(parts, rest[:n]), rest[n:]
	}
	return parts
}

// Fault 51: the parts can be read back from the key, so that no two lists of
// parts have the same one.
func FuzzJoinKey(f *testing.F) {
	f.Add("a:b", "c", "1:x")
	f.Add("", "0:", "12")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, parts := range [][]string{{a}, {a, b}, {a, b, c}, {a + b, c}} {
			if got := split(JoinKey(parts...)); !slices.Equal(got, parts) {
				t.Fatalf("%q became %q", parts, got)
			}
		}
	})
}
