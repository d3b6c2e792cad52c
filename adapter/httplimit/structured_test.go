package httplimit

import (
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// The grammar of RFC 9651, section 4 and appendix C, as regular expressions: another way to
// say what a field may be.
const (
	sfInteger = `-?[0-9]{1,15}`
	sfString  = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	sfToken   = "[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
	sfKey     = `[a-z*][a-z0-9_.*-]*`
	sfBare    = `(?:-?[0-9]{1,12}\.[0-9]{1,3}|@?` + sfInteger + `|` + sfString + `|` + sfToken + `|:[A-Za-z0-9+/]*={0,2}:|\?[01]|%"(?:[ !#$&-~]|%[0-9a-f]{2})*")`
	sfItem    = `(?:` + sfString + `|` + sfToken + `)(?:; *` + sfKey + `(?:=` + sfBare + `)?)*`
	sfList    = `^ *(?:` + sfItem + `(?:[ \t]*,[ \t]*` + sfItem + `)*[ \t]*)? *$` // tabs at the end: section 4.2.1 discards them
)

var (
	wellFormed = regexp.MustCompile(sfList)
	// ours is what this package writes: a string, and integers under one name each.
	ours      = regexp.MustCompile(`^(` + sfString + `)((?:;[a-z]=[0-9]{1,15})*)$`)
	parameter = regexp.MustCompile(`;([a-z])=([0-9]+)`)
)

// readItem reads an item that this package has written, strictly.
func readItem(t *testing.T, item string) (name string, params map[string]int64) {
	t.Helper()
	m := ours.FindStringSubmatch(item)
	if m == nil || !wellFormed.MatchString(item) {
		t.Fatalf("malformed: %q", item)
	}
	name = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[1][1 : len(m[1])-1])
	params = map[string]int64{}
	for _, p := range parameter.FindAllStringSubmatch(m[2], -1) {
		if _, twice := params[p[1]]; twice {
			t.Fatalf("%q has two parameters %s", item, p[1])
		}
		params[p[1]], _ = strconv.ParseInt(p[2], 10, 64)
	}
	return name, params
}

// Fault 60: the fields are well-formed for any name and any rule, and say what the rule says.
// CI runs it 1500 times.
func FuzzFields(f *testing.F) {
	f.Add("api", int64(100), int64(100), int64(time.Minute), int64(1))
	f.Add(`a "b" \ c`, int64(5), int64(1), int64(time.Second), int64(0))
	f.Add("too many", int64(math.MaxInt64), int64(1), int64(1), int64(0))
	f.Add("é\x00\xff%", int64(1<<53), int64(1<<53), int64(arith.MaxWindow), int64(1<<52))
	f.Add("0", int64(0), int64(7), int64(3e9), int64(5))
	f.Fuzz(func(t *testing.T, name string, n, units, per, cost int64) {
		for _, build := range []func() (*limit.Rule, error){
			func() (*limit.Rule, error) {
				return limit.TokenBucket(name, units, time.Duration(per), n)
			},
			func() (*limit.Rule, error) { return limit.FixedWindow(name, n, time.Duration(per)) },
			func() (*limit.Rule, error) { return limit.SlidingWindow(name, n, time.Duration(per)) },
		} {
			rule, err := build()
			if err != nil {
				continue
			}
			lim, c := newLimiter(t)
			key := By(func(*http.Request) string { return "k" })
			if _, err := New(limit.WithContext(lim), rule, key, Options{}); (err == nil) != isPrintable(name) {
				t.Fatalf("%q: %v", name, err)
			}
			h := protect(t, lim, Options{Clock: c}, nil, Limit{ // a rule that depends on the request may have any name
				RuleFor: func(*http.Request) *limit.Rule { return rule }, Key: key, Cost: func(*http.Request) int64 { return max(cost, 0) },
			})
			for range 3 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				told, policy := readItem(t, w.Header().Get("RateLimit-Policy"))
				if isPrintable(name) && told != name || policy["q"] != min(n, maxInteger) {
					t.Errorf("%q of %v: %q, %v", name, rule, told, policy)
				}
				if seconds, found := policy["w"]; !found && n > 0 || found && seconds == 0 {
					t.Errorf("%v: window %v", rule, policy)
				}
				again, left := readItem(t, w.Header().Get("RateLimit"))
				if r, found := left["r"]; again != told || !found || r != min(lim.Peek("k", rule).Remaining, maxInteger) {
					t.Errorf("%v: %q, %v", rule, again, left)
				}
				if after, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64); w.Header().Get("Retry-After") != "" && (err != nil || after < 1 || after < left["t"]) {
					t.Errorf("%v: Retry-After %q, %v", rule, w.Header()["Retry-After"], left)
				}
			}
		}
	})
}

// What an upstream says is read as strictly as the grammar has it.
func FuzzParseList(f *testing.F) {
	for _, seed := range []string{
		"", " ", `"a";q=1`, `"a";r=1;t=2, "b" ;r=3`, `"a",`, `,`, `"a" "b"`, `"\"\\";qu="content-bytes";pk=:cHsdsRa894==:`, `tok/en:x;a;b=?1;c=@-1;d=1.5`, `a;b=%"%c3%a9"`, "a;b=%\"%ff\"",
		`a;b=?2`, `a;b=-`, `a;b=1.`, `a;b=1234567890123456`, `a;b=123456789012345`, `a;b=1234567890123.1`, `a;B=1`, `a;*b-_.=1`, `a; b`, "a;\tb", `a ;b`, `(a b)`, `1`, `a;b=:x:`, `a;b=::`, "a;b=:Y\nQ:", `é`, `"a";r=1;r=2`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items, ok := parseList(text)
		want := wellFormed.MatchString(text) && len(text) <= longestField
		if ok && !want {
			t.Errorf("%q is malformed", text)
		}
		// Byte sequences and display strings are more than a grammar: they must decode.
		if !ok && want && !strings.ContainsAny(text, `:%`) {
			t.Errorf("%q is well-formed", text)
		}
		if again, _ := parseList(text); len(again) != len(items) {
			t.Errorf("%q: %v, then %v", text, items, again)
		}
	})
}

func TestParseList(t *testing.T) {
	items, ok := parseList(` "a b";r=5;t=-3;x=1.5;y="z";r=7,tok;qu="requests";f;d=@1;b=?0;s=:YQ:;u=%"%c3%a9 a" `)
	if !ok || len(items) != 2 || items[0].name != "a b" || items[1].name != "tok" {
		t.Fatalf("%v, %t", items, ok)
	}
	want := map[string]any{"r": int64(7), "t": int64(-3), "x": nil, "y": "z"}
	if !maps.Equal(items[0].params, want) {
		t.Errorf("%v, want %v", items[0].params, want)
	}
	if unit, found := items[1].text("qu"); unit != "requests" || !found {
		t.Errorf("%v", items[1].params)
	}
	if items, ok := parseList(""); len(items) != 0 || !ok {
		t.Errorf("nothing: %v, %t", items, ok)
	}
	if _, ok := parseList(`"` + strings.Repeat("a", longestField) + `"`); ok {
		t.Error("parsed a field of any length")
	}
	for _, bad := range []string{`a;b=%"%fF"`, `a;b=%"%f"`, `a;b=%"%ff"`, `a;b=%x`, `a;b=:a b:`, `a;b=:YQ`, `a;b=%"`} {
		if _, ok := parseList(bad); ok {
			t.Errorf("%q is malformed", bad)
		}
	}
}
