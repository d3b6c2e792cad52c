package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy is a module to try mutants on.
var toy = map[string]string{
	"go.mod":     "module toy\n\ngo 1.26\n",
	"p/word.txt": "one",
	"p/p.go": `package p

import _ "embed"

//go:embed word.txt
var word string

func add(a, b int) int { return a + b }

func unseen() int { return 1 }
`,
	"p/p_test.go": `package p

import "testing"

func TestAdd(t *testing.T) {
	if add(1, 2) != 3 {
		t.Errorf("1 + 2 = %d", add(1, 2))
	}
}

func TestWord(t *testing.T) {
	if word != "one" {
		t.Errorf("the word is %q", word)
	}
}

func TestUnseen(t *testing.T) { unseen() }

func TestBroken(t *testing.T) { t.Error("it always fails") }
`,
}

func newToy(t *testing.T) (root string) {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	root = t.TempDir()
	for name, text := range toy {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// try runs the program and returns its exit code and all that it prints.
func try(t *testing.T, root string, list ...mutant) (code int, out string) {
	t.Helper()
	var b strings.Builder
	code = run([]string{"-root", root}, list, &b, &b)
	return code, b.String()
}

var (
	minus = mutant{"minus", "Sums are differences.", "p add", "a + b", "a - b", check{"p", "TestAdd", 0}}
	two   = mutant{"two", "The embedded word is another.", "p/word.txt", "one", "two", check{"p", "TestWord", 0}}
	idle  = mutant{"idle", "Nobody looks.", "p unseen", "return 1", "return 2", check{"p", "TestUnseen", 0}}
)

func (m mutant) with(edit func(*mutant)) mutant {
	edit(&m)
	return m
}

func TestFates(t *testing.T) {
	root := newToy(t)
	for _, c := range []struct {
		name string
		m    mutant
		code int
		says string
	}{
		{"caught", minus, 0, `minus +caught by p.TestAdd .*p_test.go:7: 1 \+ 2 = -1`},
		{"caught in an embedded file", two, 0, `two +caught by p.TestWord .*the word is "two"`},
		{"caught, with other blanks", minus.with(func(m *mutant) { m.old = "{ return a+b // the sum\n}"; m.new = "{ return a - b }" }), 0, `minus +caught by p.TestAdd`},
		{"survives", idle, exitSurvived, `idle +SURVIVED p.TestUnseen`},
		{"caught by another test", minus.with(func(m *mutant) { m.by.test = "TestWord" }), exitSurvived, `minus +SURVIVED`},
		{"panics", idle.with(func(m *mutant) { m.new = `panic("no")` }), exitSurvived, `SURVIVED .*panic: no`},
		{"does not compile", minus.with(func(m *mutant) { m.new = "c" }), exitSurvived, `SURVIVED .*does not compile`},
		{"stale", minus.with(func(m *mutant) { m.old = "b + a" }), exitFailed, `stale mutant: minus: "b \+ a" is not there once in p add`},
		{"ambiguous", minus.with(func(m *mutant) { m.at, m.old = "p/p.go", "return" }), exitFailed, `stale mutant: minus: "return" is not there once`},
		{"changes nothing", minus.with(func(m *mutant) { m.new = m.old }), exitFailed, `stale mutant`},
		{"file is gone", two.with(func(m *mutant) { m.at = "p/q.txt" }), exitFailed, `stale mutant: two: open`},
		{"declaration is gone", minus.with(func(m *mutant) { m.at = "p sub" }), exitFailed, `stale mutant: minus: nothing in p is called sub`},
		{"test is gone", minus.with(func(m *mutant) { m.by.test = "TestGone" }), exitFailed, `p.TestGone does not pass`},
		{"test fails anyway", minus.with(func(m *mutant) { m.by.test = "TestBroken" }), exitFailed, `p.TestBroken does not pass(.|\n)*always fails`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := try(t, root, c.m)
			if code != c.code || !regexp.MustCompile(c.says).MatchString(out) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
	for name, want := range toy {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s was changed: %v\n%s", name, err, got)
		}
	}
}

// One that survives is not outvoted.
func TestAllMustBeCaught(t *testing.T) {
	code, out := try(t, newToy(t), minus, idle, two)
	if code != exitSurvived || !strings.Contains(out, "3 mutants, 1 survived") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]int{"-h": 0, "-none": exitFailed, "-run (": exitFailed, "-list": 0, "a-name": exitFailed, "-root /nowhere": exitFailed} {
		var b strings.Builder
		if got := run(strings.Fields(args), []mutant{minus, two}, &b, &b); got != want {
			t.Errorf("%s: exit code %d, want %d:\n%s", args, got, want, &b)
		}
	}
	var b strings.Builder
	run([]string{"-list", "-run", "^t"}, []mutant{minus, two}, &b, &b)
	if got := b.String(); strings.Contains(got, "minus") || !strings.Contains(got, "two\n\tThe embedded word is another.\n\tp/word.txt, caught by p.TestWord\n") {
		t.Error(got)
	}
}

// The table fits the code: each text is there once, and each test exists.
func TestTableIsUpToDate(t *testing.T) {
	const root = "../../.."
	names, tests := map[string]bool{}, map[string]map[string]bool{} // tests: by package
	for _, m := range table() {
		if _, _, err := m.mutate(root); err != nil {
			t.Error(err)
		}
		if names[m.name] || m.breaks == "" {
			t.Errorf("%s: says nothing, or has the name of another", m.name)
		}
		names[m.name] = true
		if tests[m.by.pkg] == nil {
			tests[m.by.pkg] = testsIn(t, filepath.Join(root, m.by.pkg))
		}
		if !tests[m.by.pkg][m.by.test] {
			t.Errorf("%s: there is no test %v", m.name, m.by)
		}
	}
}

// testsIn returns the names of the tests in a directory.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

// An overlay is what the compiler has to be told.
func TestOverlay(t *testing.T) {
	root, dir := newToy(t), t.TempDir()
	var b strings.Builder
	if code := run([]string{"-root", root, "-run", "minus", "-overlay", dir}, []mutant{minus, two}, &b, &b); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, &b)
	}
	path := strings.TrimSpace(b.String())
	cmd := exec.Command("go", "test", "-overlay", path, "-run", "TestAdd", "./p")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "1 + 2 = -1") {
		t.Errorf("%v:\n%s", err, out)
	}
	b.Reset()
	if code := run([]string{"-root", root, "-overlay", "/nowhere"}, []mutant{minus}, &b, &b); code != exitFailed {
		t.Errorf("exit code %d:\n%s", code, &b)
	}
}

// What the table cannot say is an error, and texts are what they were.
func TestParseTable(t *testing.T) {
	list, err := parseTable("# comment\n\na\tIt breaks.\tp/q.TestX 20\tp f\tif \\\\d {\\n\\t\nb\tIt, too.\tp.TestY\tp/x.lua\told\tnew\n")
	want := []mutant{{"a", "It breaks.", "p f", "if \\d {\n\t", "", check{"p/q", "TestX", 20}}, {"b", "It, too.", "p/x.lua", "old", "new", check{"p", "TestY", 0}}}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%+v, %v", list, err)
	}
	for _, line := range []string{"a\tb\tp.T\td", "a\tb\tp.T\td\te\tf\tg", "a\tb\tT\td\te\tf", "a\tb\tp.T many\td\te\tf"} {
		if list, err := parseTable("\n" + line); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %+v, %v", line, list, err)
		}
	}
}

// Each seed chooses others, and all seeds together choose each.
func TestDrawn(t *testing.T) {
	all, seen := table(), map[string]bool{}
	for seed := range uint64(400) {
		some := drawn(all, 20, seed)
		if len(some) != (len(all)+19)/20 {
			t.Fatalf("%d of %d are drawn", len(some), len(all))
		}
		for _, m := range some {
			seen[m.name] = true
		}
	}
	if len(seen) != len(all) {
		t.Errorf("400 seeds draw %d of %d", len(seen), len(all))
	}
}
