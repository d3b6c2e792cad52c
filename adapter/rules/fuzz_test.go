package rules

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

func seeds(f *testing.F, add func(text string)) {
	f.Helper()
	for _, text := range []string{
		whole, wholeJSON, one(1), api, "", "...\n", "---\n---\n", "rules: [", "rules:\n  api:\n", "a: &a [*a]\n", "? a\n: b\n", "- - - a\n", "'", "\"\\u",
		api + "overrides:\n- {key: 1, rules: {api: {unlimited: true}}}\n", "domain: d\ndescriptors:\n- {key: a, value: b*c, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}\n",
		"rules: {a: {algorithm: gcra, limit: 9007199254740992, per: 876000h}}\n", "rules: !!x |\n  a\n", "\ufeffrules:\r\n  a: {}\r\n", "a: {b,}\n", "# c",
		api + "overrides:\n- cidr: [10.0.0.0/8, ::/0]\n  blocked: true\n- {route: GET /a, unlimited: true}\n", "rules:\n  a: {limits: 1/s, keys: addresses}\noverrides:\n- {cidr: ::1/128, rules: {a: {limits: 2/s}}}\n",
	} {
		add(text)
	}
}

// Whatever a file has, it is rules or it is problems with places in it.
//
// Fault 64: any text.
func FuzzParse(f *testing.F) {
	seeds(f, func(text string) { f.Add(text) })
	f.Fuzz(func(t *testing.T, text string) {
		set, problems := parse("f", []byte(text), nil, nil)
		if (set == nil) != (len(problems) > 0) {
			t.Fatalf("a set %v, and %d problems", set != nil, len(problems))
		}
		last := strings.Count(text, "\n") + 1
		for _, p := range problems {
			if p.File != "f" || p.Line < 1 || p.Line > last || p.Column < 1 || p.Message == "" || strings.Contains(p.Message, "\n") {
				t.Errorf("of %d lines: %+v", last, p)
			}
		}
		if set == nil {
			return
		}
		for _, name := range set.Names() {
			for _, key := range []string{"", "k", text} {
				for _, q := range []Request{{Key: key}, {Key: key, Route: key}, {Addr: netip.MustParseAddr("10.0.0.1")}, {Addr: netip.MustParseAddr("::1")}} {
					if r := set.ForRequest(name, q); !r.Valid() && r != limit.Unlimited() {
						t.Errorf("%s of %q is %v", name, q, r)
					}
				}
			}
		}
		if again, problems := parse("f", []byte(text), set, nil); problems != nil || again.refusal(set, "f", false) != nil && set.source.newline {
			t.Errorf("the same text once more: %v", problems)
		}
	})
}

// A file that is cut off is refused, or decides as the whole one does.
//
// Fault 64: any file, cut off anywhere.
func FuzzCutOff(f *testing.F) {
	seeds(f, func(text string) { f.Add(text, len(text)/2) })
	f.Fuzz(func(t *testing.T, text string, n int) {
		set, _ := parse("f", []byte(text), nil, nil)
		if set == nil || n < 0 || n >= len(text) {
			return
		}
		cut, _ := parse("f", []byte(text[:n]), set, nil)
		if cut == nil || cut.refusal(set, "f", false) != nil {
			return
		}
		if cut.Size() != set.Size() || len(cut.built) != len(set.built) {
			t.Fatalf("%+v became %+v", set.Size(), cut.Size())
		}
		keys := []string{""}
		for key := range set.keys {
			keys = append(keys, key)
		}
		for key := range set.prefixes {
			keys = append(keys, key, key+"x")
		}
		for _, name := range set.Names() {
			for _, key := range keys {
				if was, is := set.For(name, key), cut.For(name, key); was != is {
					t.Errorf("%s of %q was %v, is %v", name, key, was, is)
				}
			}
			for i := range set.ranges.Len() {
				q := Request{Addr: set.ranges.Prefix(i).Addr()}
				if was, is := set.ForRequest(name, q), cut.ForRequest(name, q); was != is {
					t.Errorf("%s of %v was %v, is %v", name, q.Addr, was, is)
				}
			}
		}
	})
}
