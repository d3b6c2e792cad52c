package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// whole is a file that shows its end, in which every kind of entry is.
const whole = plans + `---
domain: d
descriptors:
  - {key: user` + rated + `1}}
...
`

// opened loads a file that is not followed. Its log is in the buffer.
func opened(t testing.TB, path string, o Options) (*File, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	f, err := openFile(path, o, readFile)
	if err != nil {
		t.Fatal(err)
	}
	return f, log
}

func lines(b *bytes.Buffer) int { return strings.Count(b.String(), "\n") }

// A bad file changes nothing. It is one line in the log and one failure, however often it is
// read.
//
// Fault 64: bad YAML, an unknown field, a duplicate name, no file, no text.
func TestBadFileChangesNothing(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"no YAML":        func(t *testing.T, path string) { write(t, path, "rules: [\n") },
		"unknown field":  func(t *testing.T, path string) { write(t, path, one(3)+"foo: 1\n") },
		"duplicate name": func(t *testing.T, path string) { write(t, path, one(3)+one(4)[7:]) },
		"bad number":     func(t *testing.T, path string) { write(t, path, one(-1)) },
		"empty":          func(t *testing.T, path string) { write(t, path, "") },
		"too large":      func(t *testing.T, path string) { write(t, path, one(3)+strings.Repeat("#\n", MaxBytes)) },
		"zeros":          func(t *testing.T, path string) { write(t, path, strings.Repeat("\x00", len(one(1)))) },
		"deleted":        func(t *testing.T, path string) { remove(t, path) },
		"a dangling link": func(t *testing.T, path string) {
			remove(t, path)
			if err := os.Symlink("nowhere", path); err != nil {
				t.Skip(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := temp(t, one(1))
			c := clock.NewManual(time.Unix(1000, 0))
			f, log := opened(t, path, Options{Clock: c})
			set, logged := f.Set(), lines(log)
			c.Advance(time.Minute)
			spoil(t, path)
			var problems Problems
			for range 3 {
				if err := f.Reload(); !errors.As(err, &problems) || len(problems) == 0 {
					t.Fatalf("%v", err)
				}
			}
			s := f.Stats()
			if f.Set() != set || s.Loads != 1 || s.Failures != 1 || !s.LastLoad.Equal(time.Unix(1000, 0)) || !s.LastFailure.Equal(time.Unix(1060, 0)) ||
				s.LastError != problems.Error() || s.Size != (Size{Rules: 1}) {
				t.Errorf("%+v", s)
			}
			if n := lines(log) - logged; n != 1 || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), path) {
				t.Errorf("%d lines:\n%s", n, log)
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			replace(t, path, one(2))
			if err := f.Reload(); err != nil || limitOf(f) != 2 {
				t.Fatalf("%v", err)
			}
			if s := f.Stats(); s.Loads != 2 || s.LastError != "" || lines(log)-logged != 2 {
				t.Errorf("%+v\n%s", s, log)
			}
		})
	}
}

// The log has the mistakes of a file, and not only the first: ten of them, and how many more there are.
func TestLogHasAllMistakes(t *testing.T) {
	for n, more := range map[int]string{2: "", 10: "", 12: "and 2 more: hybridlimit validate shows them"} {
		path := temp(t, one(1))
		f, log := opened(t, path, Options{})
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := range n {
			fmt.Fprintf(&text, "  r%d: {algorithm: token-bucket, limit: none, per: 1m}\n", i)
		}
		write(t, path, text.String())
		_ = f.Reload()
		for i := range n {
			if found := strings.Contains(log.String(), fmt.Sprintf("rules.r%d.limit: ", i)); found != (i < 10) {
				t.Errorf("of %d mistakes the log has number %d: %v\n%s", n, i, found, log)
			}
		}
		if !strings.Contains(log.String(), more) || more == "" && strings.Contains(log.String(), " more: ") {
			t.Errorf("%d mistakes:\n%s", n, log)
		}
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A file whose permissions are taken away is a bad file, and becomes a good one again without
// a change of its text.
//
// Fault 64: an unreadable file.
func TestPermissionsRemoved(t *testing.T) {
	path := temp(t, one(1))
	f, log := opened(t, path, Options{})
	if os.Geteuid() == 0 { // nothing is forbidden to root
		f.read = func(string) ([]byte, error) { return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission} }
	} else if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), ": cannot be read: permission denied") {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f.read = readFile
	if err := f.Reload(); err != nil || f.Stats().LastError != "" || f.Stats().Loads != 1 || limitOf(f) != 1 {
		t.Errorf("%v, %+v", err, f.Stats())
	}
	if !strings.Contains(log.String(), "again what is in force") || lines(log) != 3 {
		t.Errorf("%s", log)
	}
}

// same reports whether two sets decide alike all that the tests ask.
func same(a, b *Set) bool {
	if a.Size() != b.Size() {
		return false
	}
	for _, name := range []string{"api", "calls", "open"} {
		for _, key := range []string{"x", "acme", "acme-2", "monitor", "monitor-2", "evil", "12345", "10.9", "10.0.9", "10.0.0.0", "10.0.0.7"} {
			if a.For(name, key) != b.For(name, key) || a.ForPlan(name, "pro", key) != b.ForPlan(name, "pro", key) {
				return false
			}
		}
		for _, q := range []Request{{Addr: netip.MustParseAddr("172.16.0.1")}, {Addr: netip.MustParseAddr("203.0.113.9")}, {Addr: netip.MustParseAddr("2001:db8::1")}, {Route: "GET /health"}} {
			if a.ForRequest(name, q) != b.ForRequest(name, q) {
				return false
			}
		}
	}
	return true
}

// A file that is cut off, wherever that is, changes nothing: not one that shows its end, nor
// one that does not, nor JSON.
//
// Fault 64: a half-written file.
func TestTruncatedAtEveryByte(t *testing.T) {
	unmarked := strings.ReplaceAll(whole, "...\n", "")
	for name, text := range map[string]string{"marked": whole, "unmarked": unmarked, "JSON": wholeJSON} {
		path := temp(t, text)
		f, _ := opened(t, path, Options{})
		set := f.Set()
		taken := 0
		for n := range len(text) {
			f.read = func(string) ([]byte, error) { return []byte(text[:n]), nil }
			err := f.Reload()
			if err == nil {
				taken++
			}
			if !same(f.Set(), set) {
				t.Fatalf("%s: cut off after byte %d it is taken:\n%s", name, n, text[:n])
			}
		}
		// What is left out may be a line end, or a comment.
		if taken > 3 {
			t.Errorf("%s: %d of %d files were taken", name, taken, len(text))
		}
	}
}

const wholeJSON = `{"rules": {"api": {"algorithm": "gcra", "limit": 10, "per": "1s"}, "calls": {"algorithm": "sliding-window", "limit": 100, "per": "1m"}},
"plans": {"pro": {"api": {"limit": 50}}},
"overrides": [{"key": "evil", "blocked": true}]
}
`

// A new version that is cut off is no loosening either: what it lacks is in force.
//
// Fault 64: a half-written new version.
func TestTruncatedNewVersion(t *testing.T) {
	old := strings.ReplaceAll(whole, "...\n", "")
	changed := strings.NewReplacer("limit: 100,", "limit: 77,", "limit: 6000", "limit: 6001").Replace(old) + "  - {key: more" + rated + "1}}\n"
	f, _ := opened(t, temp(t, old), Options{})
	set := f.Set()
	for n := range len(changed) {
		f.set.Store(set)
		f.read = func(string) ([]byte, error) { return []byte(changed[:n]), nil }
		if f.Reload() != nil {
			if f.Set() != set {
				t.Fatalf("byte %d: half of it is applied", n)
			}
			continue
		}
		for _, key := range []string{"x", "acme", "evil", "12345", "10.9", "10.0.0.0"} {
			for _, name := range []string{"api", "calls"} {
				was, is := set.For(name, key), f.Set().For(name, key)
				if is.Limit() != was.Limit() && is.Limit() != 77 || arith.Of(is).Algorithm != arith.Of(was).Algorithm {
					t.Fatalf("byte %d: %s of %s was %v, is %v", n, name, key, was, is)
				}
			}
		}
	}
}

// What is removed must be meant.
func TestRemoval(t *testing.T) {
	two := one(1) + "  calls: {algorithm: fixed-window, limit: 2, per: 1h, dry_run: true}\n"
	less := strings.Replace(two, ", dry_run: true", "", 1)
	for _, c := range []struct {
		name, before, after string
		allow               bool
		want                string // "": it is taken
	}{
		{"a rule", two, one(1), false, "rules.calls: is in force and missing from this file: if it is to be removed, end the file with a line of ..."},
		{"a rule, with a mark", two, one(1) + "...\n", false, ""},
		{"a rule, allowed", two, one(1), true, ""},
		{"a field", two, less, false, "rules.calls.dry_run: is in force and missing"},
		{"the mark", two + "...\n", two, false, "the file seems to be cut off: the one in force ends with a line of ..."},
		{"the mark, allowed", two + "...\n", two, true, ""},
		{"half of the mark", two + "...\n", two + "..", false, "this is not YAML"},
		{"the line end of the mark", two + "...\n", two + "...", false, ""},
		{"the last line end", two, two[:len(two)-1], false, "its last line does not end"},
		{"from JSON", `{"rules": {"api": {"algorithm": "gcra", "limit": 1, "per": "1s"}, "b": {"algorithm": "gcra", "limit": 1, "per": "1s"}}}`,
			`{"rules": {"api": {"algorithm": "gcra", "limit": 1, "per": "1s"}}}`, false, ""},
		{"JSON instead of YAML", two, `{"rules": {"api": {"algorithm": "gcra", "limit": 1, "per": "1s"}}}`, false, "rules.calls: is in force"},
		{"several", two + "overrides:\n  - {key: a, blocked: true}\n  - {key: b, blocked: true}\n", one(1), false, ", as are overrides: if"},
		{"a key", two + "overrides:\n  - {key: a, blocked: true}\n  - {key: b, blocked: true}\n", two + "overrides:\n  - {key: b, blocked: true}\n", false, "overrides[key=a]: is in force"},
		{"a long key", two + "overrides:\n  - {key: " + strings.Repeat("k", 99) + "1, blocked: true}\n  - {key: " + strings.Repeat("k", 99) + "2, blocked: true}\n",
			two + "overrides:\n  - {key: " + strings.Repeat("k", 99) + "1, blocked: true}\n", false, "is in force"},
		{"moved", two + "overrides:\n  - {key: a, blocked: true}\n  - {key: b, blocked: true}\n", "overrides:\n  - {key: b, blocked: true}\n  - {key: a, blocked: true}\n" + two, false, ""},
		{"more", one(1), two, false, ""},
		{"changed", one(1), one(2), false, ""},
	} {
		path := temp(t, c.before)
		f, _ := opened(t, path, Options{AllowRemoval: c.allow})
		replace(t, path, c.after)
		err := f.Reload()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Rules whose numbers stay the same stay the same pointers, so that limiters keep what they
// know of them.
func TestReloadKeepsPointers(t *testing.T) {
	path := temp(t, whole)
	f, _ := opened(t, path, Options{})
	before := f.Set()
	replace(t, path, strings.Replace(whole, "limit: 5000", "limit: 5001", 1))
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	after := f.Set()
	if before == after || before.For("calls", "acme") == after.For("calls", "acme") {
		t.Error("nothing has changed")
	}
	if before.Rule("calls") != after.Rule("calls") || before.For("api", "acme") != after.For("api", "acme") ||
		before.Descriptor("d", entries("user=u")).Rule != after.Descriptor("d", entries("user=u")).Rule {
		t.Error("what has not changed is another rule")
	}
}

func TestBadOptions(t *testing.T) {
	_, err := Watch(temp(t, one(1)), Options{Quiet: time.Hour, Poll: -1})
	if err == nil || !strings.Contains(err.Error(), "Options.Quiet is 1h0m0s, must be 1ms to 1m0s") || !strings.Contains(err.Error(), "Options.Poll is -1ns") {
		t.Errorf("%v", err)
	}
	if _, err := Watch(temp(t, "rules: {}\n"), Options{}); err == nil {
		t.Error("a first file that is bad is taken")
	}
}

// A parser that panics does not end the process.
func TestReloadSurvivesPanics(t *testing.T) {
	f, _ := opened(t, temp(t, one(1)), Options{})
	f.read = func(string) ([]byte, error) { panic("oops") }
	f.reload()
	if s := f.Stats(); !strings.Contains(s.LastError, "oops") || s.Failures != 1 || limitOf(f) != 1 {
		t.Errorf("%+v", s)
	}
}

// A file with a rule that the limiter cannot decide by is a bad one, wherever the rule is: in
// force it would refuse everything.
//
// Fault 64: a rule of another limiter.
func TestCheckRefusesRules(t *testing.T) {
	errLog := errors.New("limit: no sliding logs here")
	check := func(rule *limit.Rule) error {
		if arith.Of(rule).Algorithm == arith.SlidingLog || rule.Limit() > 1000 {
			return errLog
		}
		return nil
	}
	for name, c := range map[string]struct{ text, want string }{
		"a rule":           {strings.Replace(one(2), "fixed-window", "sliding-log", 1), ":2:8: rules.api: no sliding logs here"},
		"an unlimited one": {"rules: {api: {algorithm: sliding-log, limit: 1, per: 1s, unlimited: true}}\n", "rules.api: "},
		"a plan":           {one(2) + "plans: {pro: {api: {limit: 1001}}}\n", "plans.pro.api: "},
		"an override":      {one(2) + "overrides: [{key: k, rules: {api: {limit: 1001}}}]\n", "overrides[key=k].rules.api: "},
		"a descriptor":     {one(2) + "---\ndomain: d\ndescriptors:\n  - {key: user" + rated + "1001}}\n", "domains.d.descriptors"},
	} {
		t.Run(name, func(t *testing.T) {
			path := temp(t, one(1))
			f, _ := opened(t, path, Options{Check: check})
			write(t, path, c.text)
			var problems Problems
			if err := f.Reload(); !errors.As(err, &problems) || len(problems) != 1 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if limitOf(f) != 1 {
				t.Error("the rules before are not in force any more")
			}
			if _, err := openFile(path, Options{Check: check}, readFile); err == nil {
				t.Error("a first file with such a rule is taken")
			}
			_, err1 := Options{Check: check}.Load(path)
			_, err2 := Options{Check: check}.Parse(path, []byte(c.text))
			_, err3 := Load(path)
			if err1 == nil || err2 == nil || err3 != nil || err1.Error() != err2.Error() || !strings.Contains(err1.Error(), c.want) {
				t.Errorf("read once: %v, %v, want %q; without Check: %v", err1, err2, c.want, err3)
			}
			if _, err := openFile(path, Options{}, readFile); err != nil {
				t.Errorf("without Check: %v", err)
			}
		})
	}
}
