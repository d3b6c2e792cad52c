package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// found says what a request finds: the path of the limit, what it is, and the key under which
// it counts.
func found(set *Set, domain, request string) string {
	d := set.Descriptor(domain, entries(request))
	if d == nil {
		return "none"
	}
	return fmt.Sprintf("%s: %v, key %q, name %q, replaces %q", d.Path, d.Rule, d.Key(entries(request)), d.Name, d.Replaces)
}

// Each field of the format changes what a request finds, or the file is refused with the
// field's place. None is accepted without an effect.
//
// Fault 100: all fields, one by one.
func TestEveryFieldHasAnEffect(t *testing.T) {
	const start = "domain: shop\ndescriptors:\n- key: page\n  value: /cart/*\n"
	const limited = start + "  rate_limit: {unit: hour, requests_per_unit: 7}\n"
	const other = "- {key: other, rate_limit: {unit: day, requests_per_unit: 9, name: all}}\n"
	swap := func(text, old, with string) string { return strings.Replace(text, old, with, 1) }
	known := slices.Concat(domainFields, descriptorFields, rateLimitFields)
	for _, c := range []struct{ field, with, without, at string }{ // at: where the file is refused
		{"domain", limited, swap(limited, "shop", "mall"), ""},
		{"descriptors", limited + "  descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]\n", limited, ""},
		{"key", limited, swap(limited, "page", "site"), ""},
		{"value", limited, swap(limited, "/cart/*", "/till/*"), ""},
		{"rate_limit", limited, start, ""},
		{"unit", swap(limited, "hour", "week"), limited, ""},
		{"requests_per_unit", swap(limited, "7", "8"), limited, ""},
		{"limits", start + "  rate_limit: {limits: \"3/s, 7/hour\"}\n", limited, ""},
		{"exact", swap(limited, "unit", "exact: true, unit"), limited, ""},
		{"unlimited", start + "  rate_limit: {unlimited: true}\n", limited, ""},
		{"name", swap(limited, "unit", "name: carts, unit"), limited, ""},
		{"replaces", swap(limited, "unit", "replaces: [{name: all}], unit") + other, limited + other, ""},
		{"shadow_mode", limited + "  shadow_mode: true\n", limited, ""},
		{"detailed_metric", limited + "  detailed_metric: true\n", "", "f:6:20: "},
		{"share_threshold", limited + "  share_threshold: true\n", limited, ""},
		{"value_to_metric", limited + "  value_to_metric: true\n", "", "f:6:20: "},
		{"quota_mode", limited + "  quota_mode: true\n", "", "f:6:15: "},
		{"metadata", limited + "  metadata: {team: {name: checkout}}\n", "", "f:6:13: "},
		// The same fields where they would have no effect.
		{"shadow_mode", start + "  descriptors: [{key: user}]\n  shadow_mode: true\n", "", "f:6:16: "},
		{"detailed_metric", start + "  detailed_metric: true\n", "", "f:5:20: "},
		{"share_threshold", start + "  share_threshold: true\n", "", "f:5:20: "},
		{"share_threshold", swap(limited, "*", "3") + "  share_threshold: true\n", "", "f:6:20: "},
		{"replaces", swap(limited, "unit", "replaces: [{name: al}], unit") + other, "", "f:5:34: "},
		{"key", swap(limited, "page", "p*e"), "", "f:3:8: "},
	} {
		known = slices.DeleteFunc(known, func(f string) bool { return f == c.field })
		set, err := Parse("f", []byte(c.with))
		if c.at != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.at) || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%s is refused with %v, want one at %s", c.field, err, c.at)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		all := func(set *Set) string {
			return found(set, "shop", "page=/cart/3") + found(set, "shop", "page=/cart/3 user=u")
		}
		if with, without := all(set), all(must(t, c.without)); with == without {
			t.Errorf("%s changes nothing: %s", c.field, with)
		}
	}
	if len(known) > 0 {
		t.Errorf("not tried: %v", known)
	}
}

// What the configurations that envoyproxy/ratelimit is tested with are about, in files of our
// own: how requests find limits. Each limit has a number of its own.
//
// Fault 100: nested limits, patterns, and what they share.
func TestRequestsFindLimits(t *testing.T) {
	n := 0
	set := must(t, regexp.MustCompile(`LIMIT`).ReplaceAllStringFunc(`
domain: library
descriptors:
  - key: branch
    value: north
    descriptors:
      - {key: reader, LIMIT}                      # 1
      - {key: reader, value: school, LIMIT}       # 2
  - {key: shelf, LIMIT}                           # 3
  - {key: shelf, value: rare, LIMIT}              # 4
  - {key: shelf, value: staff}
  - key: loan
    value: night
    LIMIT                                         # 5
    descriptors: [{key: copy, value: one, LIMIT}] # 6
  - {key: isbn, value: 978*, LIMIT}               # 7
  - {key: isbn, value: 97*-x, LIMIT}              # 8
  - {key: isbn, value: 979-0*7, LIMIT}            # 9
  - key: scan
    value: a/*/b
    share_threshold: true
    descriptors:
      - key: tray
        value: "*-*"
        share_threshold: false
        descriptors: [{key: page, LIMIT}]         # 10
      - {key: tray, value: "*=*", share_threshold: true, LIMIT} # 11
  - {key: file, value: t*, share_threshold: true, LIMIT}        # 12
  - {key: file, value: t1, LIMIT}                 # 13
  - {key: file, value: t**9, LIMIT}               # 14
`, func(string) string {
		n++
		return fmt.Sprintf("rate_limit: {unit: hour, requests_per_unit: %d}", n)
	}))
	for _, c := range []struct {
		request string
		per     uint32 // 0: nothing limits it
		key     string // "": that of the request
	}{
		{"branch=north reader=r", 1, ""},
		{"branch=north reader=school", 2, ""},
		{"branch=south reader=school", 0, ""},
		{"branch=north", 0, ""},
		{"shelf=any", 3, ""},
		{"shelf=staff", 0, ""},
		{"loan=night", 5, ""},
		{"loan=night copy=one", 6, ""},
		{"loan=night copy=two", 0, ""},
		{"isbn=978", 7, ""},
		{"isbn=978-x", 7, ""}, // the first of the file
		{"isbn=978*", 7, ""},
		{"isbn=97-x", 8, ""},
		{"isbn=97*-x", 8, ""}, // its own text, and the other one has no part of it
		{"isbn=979-07", 9, ""},
		{"isbn=979-0-1-8", 0, ""},
		{"isbn=979-0", 0, ""},
		{"scan=a/2/b tray=1-2 page=3", 10, "scan=a/*/b tray=1-2 page=3"},
		{"scan=a//b tray=- page=", 10, "scan=a/*/b tray=- page="},
		{"scan=a/2/b tray=1=2", 11, "scan=a/*/b tray=*=*"},
		{"scan=a/b tray=1-2 page=3", 0, ""}, // the two texts may not overlap
		{"scan=a/2/b tray=12 page=3", 0, ""},
		{"file=t2", 12, "file=t*"},
		{"file=t1", 13, ""},
		{"file=t29", 12, "file=t*"},
		{"file=t**9", 14, ""}, // a value comes before all patterns, also one with a star
	} {
		d := set.Descriptor("library", entries(c.request))
		switch {
		case (d == nil) != (c.per == 0) || d != nil && d.RequestsPerUnit != c.per:
			t.Errorf("%s: %+v, want limit %d", c.request, d, c.per)
		case d != nil:
			if want := cmp.Or(c.key, c.request); d.Key(entries(c.request)) != (&Descriptor{}).Key(entries(want)) {
				t.Errorf("%s counts as %q, want %s", c.request, d.Key(entries(c.request)), want)
			}
		}
	}
}
