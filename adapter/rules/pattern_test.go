package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// matchesSlowly is what a pattern means, by trying all that a star may stand for.
func matchesSlowly(pattern, value string) bool {
	switch {
	case pattern == "":
		return value == ""
	case pattern[0] == '*':
		return matchesSlowly(pattern[1:], value) || value != "" && matchesSlowly(pattern, value[1:])
	}
	return value != "" && value[0] == pattern[0] && matchesSlowly(pattern[1:], value[1:])
}

// checkPatterns compares what is found for values with the slow way: all patterns, one after
// another.
func checkPatterns(t *testing.T, list, values []string) {
	t.Helper()
	p, levels := &patterns{}, make([]level, len(list))
	for i, text := range list {
		p.put(text, &levels[i])
	}
	for _, value := range values {
		var want *level
		i := slices.IndexFunc(list, func(text string) bool { return matchesSlowly(text, value) })
		if i >= 0 {
			want = &levels[i]
		}
		if got := p.find(value); got != want {
			t.Fatalf("%.200q, value %q: not that of the pattern at %d is found", list, value, i)
		}
	}
}

// words makes n different words of a few letters.
func words(rng *rand.Rand, n, most int, letters string) (list []string) {
	seen := map[string]bool{}
	for len(list) < n {
		b := make([]byte, rng.IntN(most+1))
		for i := range b {
			b[i] = letters[rng.IntN(len(letters))]
		}
		if !seen[string(b)] {
			seen[string(b)] = true
			list = append(list, string(b))
		}
	}
	return list
}

// A star stands for any text wherever it is, and the first pattern of a file counts.
//
// Fault 100: stars in any places.
func TestPatterns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 100))
	for range 200 {
		list := words(rng, 12, 7, "ab*")
		list = slices.DeleteFunc(list, func(p string) bool { return !strings.Contains(p, "*") })
		checkPatterns(t, list, words(rng, 60, 9, "ab*"))
	}
	// So many that the inner texts of one group are looked up.
	list := words(rng, 600, 6, "abcd*")
	for i := range list {
		list[i] = "*" + list[i] + "*"
	}
	values := words(rng, 1000, 12, "abcdef")
	checkPatterns(t, list, values)
	slices.Reverse(list)
	checkPatterns(t, list, values)
}

// Fault 100: any pattern and any value.
func FuzzPatterns(f *testing.F) {
	for _, c := range [][2]string{{"/v1/*/orders", "/v1/a/orders"}, {"a*a", "a"}, {"**", ""}, {"*a*ab*b", "aabb"}, {"a*", "a*\na"}} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		if len(text)+len(value) > 30 { // the slow way takes exponential time
			return
		}
		list := []string{}
		for line := range strings.SplitSeq(text, "\n") {
			if strings.Contains(line, "*") {
				list = append(list, line)
			}
		}
		checkPatterns(t, list, []string{value, value + value, ""})
	})
}

// manyPatterned returns a domain with n patterns of each shape: what tells them apart is before
// the stars, after them, or between them.
func manyPatterned(n int) string {
	var b strings.Builder
	b.WriteString("domain: many\ndescriptors:\n")
	for i := range n {
		for _, shape := range []string{"/team-%d/*/orders", "*.team-%d.example", "/x/*/team-%d-*"} {
			fmt.Fprintf(&b, "  - {key: path, value: \""+shape+"\", rate_limit: {unit: second, requests_per_unit: 1}}\n", i)
		}
	}
	return b.String()
}

// A look-up tries a few of thousands of patterns, however they differ.
func TestPatternsAreGrouped(t *testing.T) {
	const each = 2000
	p := &must(t, manyPatterned(each)).domains["many"].keys["path"].patterns
	heads, tails, inner := len(p.heads.lengths), 0, 0
	for _, by := range p.heads.of {
		tails = max(tails, len(by.lengths))
		for _, g := range by.of {
			if len(g.list) > manyPatterns*len(g.inner.lengths) {
				for _, list := range g.inner.of {
					inner = max(inner, len(list))
				}
			} else {
				inner = max(inner, len(g.list))
			}
		}
	}
	// Lengths: of 1 to 4 digits, and of the text that does not differ.
	if p.count != 3*each || heads > 6 || tails > 4 || inner > 1 {
		t.Errorf("%d patterns, begins of %d lengths, ends of %d, and %d of one text", p.count, heads, tails, inner)
	}
}
