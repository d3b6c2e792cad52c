package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// api is a rules file that mistakes are added to.
const api = "rules:\n  api: {algorithm: gcra, limit: 5, per: 1s}\n"

// Each mistake is one problem, at its place, that says what is wrong.
//
// Faults 45, 60, 64: unknown fields, duplicate names, bad numbers, names that are no ASCII.
func TestMistakes(t *testing.T) {
	rule := func(fields string) string { return "rules:\n  api: {" + fields + "}\n" }
	window := "algorithm: sliding-window, limit: 5, per: 1s"
	for _, c := range []struct{ text, want string }{
		{rule(window + ", limt: 6"), "2:55: rules.api.limt: unknown field, did you mean limit?"},
		{api + "rulez: {}\n", "3:1: rulez: unknown field, did you mean rules?"},
		{rule("algorithm: sliding-window, limit: 5, limit: 6, per: 1s"), "2:46: rules.api.limit: this was given before, in line 2"},
		{api + "  api: {algorithm: gcra, limit: 6, per: 1s}\n", "3:3: rules.api: this was given before, in line 2"},
		{api + "rules: {}\n", "3:1: rules: this was given before, in line 1"},
		{rule("limit: 5, per: 1s"), "2:3: rules.api.algorithm: is missing: one of token-bucket"},
		{rule("algorithm: gcra, per: 1s"), "2:3: rules.api.limit: is missing"},
		{rule("algorithm: gcra, limit: 1"), "2:3: rules.api.per: is missing"},
		{rule("algorithm: sliding, limit: 5, per: 1s"), `2:20: rules.api.algorithm: there is no "sliding", did you mean sliding-window?`},
		{rule("algorithm: gcra, limit: -5, per: 1s"), "2:33: rules.api.limit: must be 0 to 9007199254740992, is -5"},
		{rule("algorithm: gcra, limit: .nan, per: 1s"), "must be a whole number, written in digits alone, such as 1000, is .nan"},
		{rule("algorithm: gcra, limit: 1.5, per: 1s"), "is 1.5"},
		{rule(`algorithm: gcra, limit: "5", per: 1s`), "not text: write it without quotes"},
		{rule("algorithm: gcra, limit: [5], per: 1s"), "must be a whole number, not a list"},
		{rule("algorithm: gcra, limit: 0, per: 1s"), "a bucket needs a rate above 0; to refuse everything write blocked: true"},
		{rule("algorithm: gcra, limit: 5, per: 60"), "2:41: rules.api.per: 60 has no unit: write a duration such as 60s, 1m or 24h"},
		{rule("algorithm: gcra, limit: 5, per: 0"), "must be longer than 0, is 0"},
		{rule("algorithm: gcra, limit: 5, per: 1d"), "days and longer are written in hours"},
		{rule("algorithm: gcra, limit: 5, per: 999999999h"), "must be a duration"},
		{rule("algorithm: gcra, limit: 5, per: 900000h"), "must be 1ns to 876000h0m0s, is 900000h"},
		{rule("algorithm: fixed-window, limit: 5, per: 1us"), "window 1µs: must be 1ms to 876000h0m0s"},
		{rule("algorithm: gcra, limit: 1, burst: 9007199254740992, per: 24h"), "would need more than 876000h0m0s to fill"},
		{rule("algorithm: sliding-log, limit: 1000001, per: 1s"), "a sliding log keeps one record per unit and holds at most 1000000"},
		{rule(window + ", burst: 9"), "burst: is for token-bucket, leaky-bucket and gcra alone"},
		{rule("algorithm: gcra, limit: 5, per: 1s, burst: 0"), "burst: must be 1 to"},
		{rule("algorithm: gcra, limit: 5, per: 1s, buckets: 9"), "buckets: is for sliding-window alone"},
		{rule(window + ", buckets: 1001"), "buckets 1001: must be 1 to 1000"},
		{rule(window + ", dry_run: yes"), "dry_run: must be true or false, is yes"},
		{rule(window + `, dry_run: "true"`), `dry_run: must be true or false, is "true"`},
		{rule(window + ", unlimited: true, blocked: true"), "cannot be unlimited and blocked at once"},
		{"rules:\n  a@b: {}\n", `2:3: rules["a@b"]: the name of a rule is printable ASCII without @`},
		{"rules:\n  " + strings.Repeat("x", 257) + ": {}\n", "the name of a rule has at most 256 bytes, this one has 257"},
		{"rules:\n  api:\n", "rules.api: must be a mapping of fields, not nothing"},
		{"rules: {}\n", "rules: is empty: a file without rules limits nothing"},
		{"plans: {}\n", "rules: is missing: a file without rules limits nothing"},
		{"rules: [a]\n", "rules: must be a mapping of fields, not a list"},

		{api + "plans: {pro: {appi: {limit: 6}}}\n", `3:15: plans.pro.appi: there is no rule "appi", did you mean api?; the rules are api`},
		{api + "plans: {pro: {api: {algorithm: gcra}}}\n", "plans.pro.api.algorithm: only the rule itself has an algorithm"},
		{api + "plans: {pro: {api: {limit: 6}, api: {limit: 7}}}\n", "plans.pro.api: this was given before"},
		{api + "plans: {pro: {}, pro: {}}\n", "plans.pro: this was given before, in line 3"},
		{api + "plans: {pro: {api: 6}}\n", "plans.pro.api: must be a mapping of fields, not a single value"},
		{api + "plans: {prö: {}}\n", "the name of a plan is printable ASCII"},
		{api + "plans: {" + strings.Repeat("x", 255) + ": {api: {limit: 6}}}\n", "must be at most 256 bytes"},

		{api + "overrides:\n  - key: acme\n    plan: gold\n", `5:11: overrides[key=acme].plan: there is no plan "gold"; the plans are none`},
		{api + "overrides:\n  - blocked: true\n", "overrides[0]: an override needs a key, a prefix of keys, a cidr or a route"},
		{api + "overrides:\n  - {key: a, prefix: b, blocked: true}\n", "an override has one of key, prefix, cidr and route"},
		{api + "overrides:\n  - {cidr: 10.0.0.1/8, blocked: true}\n", `rules.yaml:4:12: overrides[cidr="10.0.0.1/8"].cidr: 10.0.0.1/8 has bits behind the first 8: the range is 10.0.0.0/8, the address alone 10.0.0.1/32`},
		{api + "overrides:\n  - {cidr: 10.0.0.1, blocked: true}\n", "cidr: 10.0.0.1 is one address: write 10.0.0.1/32"},
		{api + "overrides:\n  - {cidr: 10.0.0.0/33, blocked: true}\n", "must be a range of addresses such as 10.0.0.0/8 or 2001:db8::/32, is 10.0.0.0/33"},
		{api + "overrides:\n  - {cidr: [], blocked: true}\n", "cidr: must not be empty"},
		{api + "overrides:\n  - {cidr: [10.0.0.0/8, 2001:db8::/32], blocked: true}\n", "cidr[1]: must be a range of addresses, not a mapping of fields: write one of IPv6 in quotes"},
		{api + "overrides:\n  - {cidr: [10.0.0.0/8, [1]], blocked: true}\n", ":4:25: overrides[cidr=\"10.0.0.0/8\"].cidr[1]: must be text, not a list"},
		{api + "overrides:\n  - {cidr: 10.0.0.0/8, blocked: true}\n  - {cidr: [\"::1/128\", 10.0.0.0/8], unlimited: true}\n", "there is an override of this already, in line 4"},
		{api + "overrides:\n  - {cidr: 10.0.0.0/8, blocked: true}\n  - {cidr: \"::ffff:10.0.0.0/104\", unlimited: true}\n", ":5:12: overrides[cidr=\"::ffff:10.0.0.0/104\"].cidr: there is an override of this already, in line 4"},
		{api + "overrides:\n  - {cidr: 10.0.0.0/8, route: GET /, blocked: true}\n", "an override has one of key, prefix, cidr and route"},
		{api + "overrides:\n  - {cidr: 10.0.0.0/8}\n", "an override needs one of plan, rules, unlimited and blocked"},
		{api + "overrides:\n  - {route: health, unlimited: true}\n", "route: must be a route such as GET /health"},
		{api + "overrides:\n  - {route: get /health, unlimited: true}\n", "a method is written in capitals and before the path, as in GET /health, is get /health"},
		{api + "overrides:\n  - {route: /health, unlimited: true}\n  - {route: /health, blocked: true}\n", "there is an override of this already, in line 4"},
		{api + "overrides:\n  - {route: /health, plan: gold}\n", `there is no plan "gold"`},
		{"rules:\n  api: {algorithm: gcra, limit: 5, per: 1s, keys: users}\n", "rules.api.keys: must be addresses, for a rule whose keys are addresses of clients, is users"},
		{api + "plans:\n  pro: {api: {keys: addresses}}\n", "plans.pro.api.keys: unknown field"},
		{api + "overrides:\n  - {key: a}\n", "overrides[key=a]: an override needs one of plan, rules, unlimited and blocked"},
		{api + "overrides:\n  - {key: a, blocked: true, unlimited: true}\n", "only one of plan, unlimited and blocked"},
		{api + "overrides:\n  - {key: a, blocked: true}\n  - {key: a, unlimited: true}\n", "5:5: overrides[key=a]: there is an override of this already, in line 4"},
		{api + "overrides:\n  - {key: \"\", blocked: true}\n", "must not be empty"},
		{api + "overrides:\n  - {key: [a], blocked: true}\n", "must be text, not a list"},
		{api + "overrides:\n  - {key: " + strings.Repeat("k", 1025) + ", blocked: true}\n", "key: has at most 1024 bytes, this one has 1025"},
		{api + "overrides:\n  - {key: a, rules: {api: {limit: 5, foo: 1}}}\n", "overrides[key=a].rules.api.foo: unknown field"},
		{api + "overrides: {a: b}\n", "overrides: must be a list, not a mapping of fields"},

		{"", "1:1: the file is empty: it has no rules"},
		{"hello\n", "1:1: must be a mapping of fields, not a single value"},
		{api + "---\n" + api, "4:1: there is a document of rules already, in line 1"},
		{"rules:\n  api: &a {algorithm: gcra, limit: 5, per: 1s}\n", "2:8: anchors, aliases and << are not supported"},
		{"rules: !!map {}\n", "1:8: tags such as !!map are not supported"},
		{"%YAML 1.2\n---\n" + api, "1:1: directives are not supported"},
		{"rules:\n  ? api\n  : {}\n", "2:3: a field is written as name: value, without a question mark"},
		{api + "overrides:\n  - key: |\n      a\n    blocked: true\n", "4:10: text in several lines"},
		{api + "plans:\n  pro\n   plus: {}\n", "4:3: text in several lines"},
		{api + "overrides:\n  - {key: \"a\n     b\", blocked: true}\n", "4:11: text in several lines"},
		{api + "...\n---\n" + api, "4:1: nothing may follow the line of ... in line 3, which ends the file"},
		{"rules:\n\tapi: {}\n", "2:1: this is not YAML"},
		{"rules:\n  api:\n    limit: 5\n   per: 1s\n", "4:4: this is not YAML"},
		{`{"rules": {"api": {"limit": 5}}`, "this is not YAML"},
		{api + "\x00", "3:1: the character U+0000 is not allowed"},
		{api + "# \xff", "3:3: the byte 0xff is not allowed: write UTF-8 text"},
		{"rules: {api: {algorithm: gcra, limit: \u009b31m5, per: 1s}}\n", "1:39: the character U+009B is not allowed"},
		{api + "a\rb", "a carriage return without a line feed"},
	} {
		problems := Validate("rules.yaml", []byte(c.text))
		if len(problems) == 0 || !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%q:\n\t%v\nwant one that says\n\t%s", c.text, problems.Error(), c.want)
		}
		for _, p := range problems {
			if p.Line < 1 || p.Column < 1 || p.File != "rules.yaml" || p.Message == "" {
				t.Errorf("%q: no place: %+v", c.text, p)
			}
		}
		if len(problems) > 3 {
			t.Errorf("%q: one mistake is %d problems:\n%v", c.text, len(problems), problems)
		}
	}
}

// All mistakes of a file are found in one pass, in the order of the lines.
func TestAllMistakesAtOnce(t *testing.T) {
	text := `rules:
  api: {algorithm: gcra, limit: -1, per: 60}
  calls: {algorithm: fixed-window, limit: 1, per: 1s, bust: 3}
plans:
  pro: {cals: {limit: 5}}
overrides:
  - {key: a, plan: gold}
`
	problems := Validate("rules.yaml", []byte(text))
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if want := "[2 2 3 5 7]"; fmt.Sprint(lines) != want {
		t.Errorf("lines %v, want %s:\n%v", lines, want, problems)
	}
	var as Problems
	if _, err := Parse("rules.yaml", []byte(text)); !errors.As(err, &as) || len(as) != 5 {
		t.Errorf("Parse: %v", err)
	}
}

// Hundreds of mistakes are not hundreds of lines.
func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(api + "plans:\n  pro:\n")
	for i := range 1500 {
		fmt.Fprintf(&b, "    r%d: {}\n", i)
	}
	problems := Validate("rules.yaml", []byte(b.String()))
	if len(problems) != maxProblems+1 || !strings.Contains(problems.Error(), "1400 more problems are not shown") {
		t.Errorf("%d problems, the last is %v", len(problems), problems[len(problems)-1])
	}
}

// The place of a mistake does not depend on what a file looks like before it.
func TestPlaces(t *testing.T) {
	for name, text := range map[string]string{
		"comments": "# c\n\nrules: # x\n\n  # y\n  api:\n    # z\n    algorithm: gcra # w\n    limit: 5\n\n    per: 1s\n    foo: 1\n",
		"crlf":     "# c\r\n\r\nrules:\r\n\r\n\r\n  api:\r\n\r\n    algorithm: gcra # w\r\n    limit: 5\r\n\r\n    per: 1s\r\n    foo: 1\r\n",
		"quotes":   "# c\n\nrules:\n  a: {algorithm: \"gc\\nra\",\n\n\n    limit: 5,\n\n    per: 'x''y',\n\n\n    foo: 1}\n",
		"json":     "{\n\n\n\n\n\t\"rules\": {\n\t\t\"api\": {\"algorithm\": \"gcra\",\n\n\"limit\": 5,\n\n\"per\": \"1s\",\n\"foo\": 1}\n\t}\n}\n",
		"bom":      "\ufeff# c\n\nrules:\n\n\n  api:\n\n    algorithm: gcra # w\n    limit: 5\n\n    per: 1s\n    foo: 1\n",
	} {
		problems := Validate(name, []byte(text))
		found := false
		for _, p := range problems {
			found = found || p.Line == 12 && strings.HasSuffix(p.Field, ".foo")
		}
		if !found {
			t.Errorf("%s: %v, want one in line 12", name, problems)
		}
	}
}

// JSON with all that YAML writes otherwise: tabs, escaped slashes, surrogate pairs.
func TestJSON(t *testing.T) {
	set := must(t, "{\n\t\"rules\": {\n\t\t\"a\\/b\": {\"algorithm\": \"sliding-window\", \"limit\": 5, \"per\": \"1m\", \"dry_run\": false}\n\t},\n"+
		"\t\"overrides\": [{\"key\": \"\\ud83d\\ude00\\u00e9\\\"\", \"blocked\": true}]\n}\n")
	if r := set.Rule("a/b"); r.Limit() != 5 || r.Period() != time.Minute || set.For("a/b", "😀é\"").Limit() != 0 {
		t.Errorf("%v, %v", r, set.For("a/b", "😀é\""))
	}
}

// Each algorithm by its words, with the defaults of package limit.
func TestRules(t *testing.T) {
	set := must(t, `
rules:
  token: {algorithm: token-bucket, limit: 5, per: 1s, burst: 20}
  leaky: {algorithm: leaky-bucket, limit: 5, per: 1s}
  gcra: {algorithm: gcra, limit: 5, per: 1s}
  window: {algorithm: sliding-window, limit: 100, per: 1m}
  fine: {algorithm: sliding-window, limit: 100, per: 1m, buckets: 60}
  quota: {algorithm: fixed-window, limit: 1000, per: 24h, dry_run: true}
  exact: {algorithm: sliding-log, limit: 10, per: 1m30s}
  nothing: {algorithm: fixed-window, limit: 0, per: 1s}
  shut: {algorithm: gcra, limit: 5, per: 1s, blocked: true}
  open: {algorithm: gcra, limit: 5, per: 1s, unlimited: true}
`)
	for name, want := range map[string]*limit.Rule{
		"token":   limit.Must(limit.TokenBucket("token", 5, time.Second, 20)),
		"leaky":   limit.Must(limit.TokenBucket("leaky", 5, time.Second, 5)),
		"gcra":    limit.Must(limit.TokenBucket("gcra", 5, time.Second, 5)),
		"window":  limit.Must(limit.SlidingWindow("window", 100, time.Minute)),
		"fine":    limit.Must(limit.SlidingWindowBuckets("fine", 100, time.Minute, 60)),
		"quota":   limit.Must(limit.FixedWindow("quota", 1000, 24*time.Hour)).DryRun(),
		"exact":   limit.Must(limit.SlidingLog("exact", 10, 90*time.Second)),
		"nothing": limit.Must(limit.FixedWindow("nothing", 0, time.Second)),
		"shut":    limit.Must(limit.TokenBucket("shut", 5, time.Second, 0)),
		"open":    limit.Unlimited(),
	} {
		if got := set.Rule(name); got.String() != want.String() {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if set.Rule("open") != limit.Unlimited() || set.Rule("missing") != nil || set.For("missing", "k") != nil {
		t.Error("unlimited is not the one of package limit, or a rule that is not there is one")
	}
	if size := set.Size(); size != (Size{Rules: 10}) || len(set.Names()) != 10 || set.Names()[0] != "exact" {
		t.Errorf("%+v, %v", size, set.Names())
	}
}

// What is too large, too deep or too much is refused before it takes time or memory.
//
// Fault 64: a hostile file does not take the process with it.
func TestHostileFiles(t *testing.T) {
	const n = MaxBytes / 16 // more takes longer and shows the same
	var bomb, steps strings.Builder
	bomb.WriteString("a0: &a0 [x, x]\n")
	for i := range 100 {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
		steps.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for name, c := range map[string]struct{ text, want string }{
		"large":       {strings.Repeat("#\n", MaxBytes), "more than 1048576 bytes"},
		"alias bomb":  {bomb.String(), "anchors, aliases and << are not supported"},
		"brackets":    {strings.Repeat("[", n), "nested more than 32 levels deep"},
		"dashes":      {strings.Repeat("- ", n/2), "nested more than 32 levels deep"},
		"question":    {strings.Repeat("? ", n/2), "nested more than 32 levels deep"},
		"indents":     {steps.String(), "nested more than 32 levels deep"},
		"items":       {"a: [" + strings.Repeat("a,", n/2-4) + "]", "more than 20000 items in one list"},
		"fields":      {strings.Repeat("a: b\n", n/5), "more than 2000 fields in one mapping"},
		"bare keys":   {"{" + strings.Repeat("a, ", n/3-1) + "}", "a field needs a value"},
		"empty items": {"a:\n" + strings.Repeat("-\n", n/2-4), "a field needs a value"},
		"documents":   {strings.Repeat("---\na: b\n", n/9), "more than 1000 documents"},
		"lines":       {"a: |\n" + strings.Repeat("\n", n-10), "more than 100 empty lines in a row"},
	} {
		problems := Validate(name, []byte(c.text))
		if !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%s: %.300s\nwant one that says %s", name, problems.Error(), c.want)
		}
	}
}

// What is no file of text is not read: not a gigabyte of it, nor more of it than it takes to
// know that it is too large.
func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge.yaml")
	write(t, huge, api)
	if err := os.Truncate(huge, 128*MaxBytes); err != nil { // takes no room: nothing is in it
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for path, want := range map[string]string{
		huge: "cannot be read: the file has more than 1048576 bytes", dir: "this is not a regular file",
		filepath.Join(dir, "none.yaml"): "none.yaml: cannot be read: no such file or directory",
	} {
		_, err := Load(path)
		var problems Problems
		if !errors.As(err, &problems) || len(problems) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	runtime.ReadMemStats(&after)
	// A buffer that grows to the bound takes some times the bound, all its steps together.
	if n := after.TotalAlloc - before.TotalAlloc; n > 32*MaxBytes {
		t.Errorf("%d bytes are allocated for a file that is too large, %d are allowed", n, MaxBytes)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is no fs.ErrNotExist", err)
	}
}

// A comment may follow the mark that ends a file, and the file counts as whole then.
func TestCommentBehindTheEndMark(t *testing.T) {
	const rule = "rules: {api: {algorithm: token-bucket, limit: 10, per: 1m}}\n"
	for end, whole := range map[string]bool{
		"...\n": true, "... # the end\n": true, "...\t# the end": true, "...   \r\n": true, "... # the end\r\n# more\n": true,
		"# ... the end\n": false, "": false,
	} {
		set, err := Parse("f", []byte(rule+end))
		if err != nil {
			t.Errorf("%q: %v", end, err)
		} else if set.source.marked != whole {
			t.Errorf("%q: marked is %v", end, !whole)
		}
	}
	for _, end := range []string{"... more\n", "....\n", " ... # the end\n", "... # the end\nrules: {}\n"} {
		if _, err := Parse("f", []byte(rule+end)); err == nil {
			t.Errorf("%q: no error", end)
		}
	}
}
