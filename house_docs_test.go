package hybridlimit_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// What is written for people is checked as far as a program can.

// read returns the text of a file.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The README is for ten minutes; what takes longer is in docs. The addresses of links do not count.
func TestHouseReadmeIsShort(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(read(t, "README.md"), "\n"), "\n")
	if len(lines) > mostReadmeLines {
		t.Errorf("README.md has %d lines, more than %d", len(lines), mostReadmeLines)
	}
	for i, l := range lines {
		if n := utf8.RuneCountInString(link.ReplaceAllString(l, "]")); n > mostReadmeWidth {
			t.Errorf("line %d of README.md has %d characters, more than %d", i+1, n, mostReadmeWidth)
		}
	}
}

// The program that users copy is one that is compiled and tested.
func TestHouseReadmeQuickStart(t *testing.T) {
	program := read(t, "examples/allow/main.go")
	if !strings.Contains(read(t, "README.md"), "```go\n"+program+"```\n") {
		t.Error("README.md does not contain examples/allow/main.go as it is")
	}
}

// The recipes are no whole programs: they compile among declarations of what they use.
func TestHouseRecipes(t *testing.T) {
	_, recipes, found := strings.Cut(read(t, "docs/calls.md"), "## Recipes\n\n```go\n")
	recipes, _, closed := strings.Cut(recipes, "```\n")
	if !found || !closed {
		t.Fatal("docs/calls.md has no recipes")
	}
	vet(t, `package main

import (
	"context"
	"time"

	"`+module+`/clock"
	"`+module+`/hybrid"
	"`+module+`/hybridtest"
	"`+module+`/limit"
)

const day = 24 * time.Hour

func recipes(ctx context.Context, t hybridtest.TB, lim *hybrid.Limiter, perUser, perTenant, tenPerSecond *limit.Rule,
	user, tenant, action string, size int64, start time.Time, customer struct{ ID, Plan string }) []any {
	`+recipes+`
	return []any{ok, v, err, refused, key, alone, h}
}

func main() {}
`)
}

// The command of the README that makes a program use a clone replaces every module that one can import.
func TestHouseReplace(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	clone, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/api\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", filepath.Join(clone, "deploy/replace.sh"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	is := read(t, filepath.Join(dir, "go.mod"))
	for _, pattern := range []string{"go.mod", "adapter/*/go.mod", "compat/*/go.mod"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if at := filepath.ToSlash(filepath.Dir(f)); !strings.HasSuffix(at, "tests") && !strings.Contains(is, path.Join(module, at)+" => "+filepath.Join(clone, at)+"\n") {
				t.Errorf("deploy/replace.sh does not replace %s:\n%s", at, is)
			}
		}
	}
	for _, m := range regexp.MustCompile("=> (.*)\n").FindAllStringSubmatch(is, -1) {
		if _, err := os.Stat(filepath.Join(m[1], "go.mod")); err != nil {
			t.Errorf("deploy/replace.sh: %v", err)
		}
	}
}

// ruleCell is an expression in the README's table of rules.
var ruleCell = regexp.MustCompile("(?m)^\\| `(limit\\..*?)` \\|")

// The rules and the middleware of the README compile as they stand.
func TestHouseReadmeRules(t *testing.T) {
	readme := read(t, "README.md")
	var rules strings.Builder
	found := ruleCell.FindAllStringSubmatch(readme, -1)
	for _, m := range found {
		rules.WriteString("\tlimit.Must(" + m[1] + "),\n")
	}
	_, middleware, ok := strings.Cut(readme, "returns the key of a request:\n```go\n")
	middleware, _, closed := strings.Cut(middleware, "```\n")
	if len(found) != 6 || !ok || !closed {
		t.Fatalf("README.md has %d rules, a middleware: %v", len(found), ok && closed)
	}
	vet(t, `package main

import (
	"net/http"
	"time"

	"`+module+`/adapter/httplimit"
	"`+module+`/hybrid"
	"`+module+`/limit"
)

var rules = []*limit.Rule{
	`+rules.String()+`
}

func protected(lim *hybrid.Limiter, perUser *limit.Rule, user func(*http.Request) string, handler http.Handler) {
	`+middleware+`
}

func main() { _ = time.Minute }
`)
}

// vet compiles a program, and fails if it is wrong.
func vet(t *testing.T, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// shown is a piece of a page that stands for a file.
var shown = regexp.MustCompile("(?s)```(?:go|python|yaml)\n(.*?)```")

// What the migration pages show is compiled, parsed and tested elsewhere: each piece is a file,
// or a part of one. No program that is there is missing in the pages.
func TestHouseMigrationPages(t *testing.T) {
	var files []string
	programs := 0
	pages := everything(t, "docs/migrate")
	for _, p := range slices.Concat(everything(t, "bench/migrate"), everything(t, "compat"), everything(t, "examples/sidecar")) {
		text := read(t, p)
		files = append(files, text)
		switch filepath.Base(p) {
		case "before.go", "after.go", "during.go":
			programs++
			if !slices.ContainsFunc(pages, func(page string) bool { return strings.Contains(read(t, page), "```go\n"+text+"```\n") }) {
				t.Errorf("no page of docs/migrate shows %s as it is", p)
			}
		}
	}
	pieces := 0
	for _, page := range pages {
		for _, m := range shown.FindAllStringSubmatch(read(t, page), -1) {
			pieces++
			if !slices.ContainsFunc(files, func(text string) bool { return hasLines(text, m[1]) }) {
				t.Errorf("%s shows what is part of no file:\n%s", page, m[1])
			}
		}
	}
	if programs < 5 || pieces < 7 {
		t.Errorf("%d programs, %d pieces", programs, pieces)
	}
}

// everything returns the files below a directory.
func everything(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// hasLines reports whether a text contains lines in a row, which may be indented there.
func hasLines(text, lines string) bool {
	const mostIndented = 40
	for n := range 2 * mostIndented {
		indent := strings.Repeat(" \t"[n%2:n%2+1], n/2)
		var piece strings.Builder
		for line := range strings.Lines(lines) {
			if line != "\n" {
				piece.WriteString(indent)
			}
			piece.WriteString(line)
		}
		if strings.Contains("\n"+text, "\n"+piece.String()) {
			return true
		}
	}
	return false
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?s)```.*?```")
)

// Every link within the project leads somewhere, to the heading as well.
func TestHouseLinks(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".md" {
			return nil
		}
		pages++
		for _, m := range link.FindAllStringSubmatch(read(t, p), -1) {
			if !strings.Contains(m[1], "://") {
				followLink(t, p, m[1])
			}
		}
		return nil
	})
	if err != nil || pages < 10 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

func followLink(t *testing.T, page, to string) {
	t.Helper()
	file, anchor, anchored := strings.Cut(to, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s links to %s, which is not there", page, to)
		return
	}
	if !anchored {
		return
	}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, target), ""), -1) {
		if slug(h[1]) == anchor {
			return
		}
	}
	t.Errorf("%s links to %s, which is no heading", page, to)
}

// slug returns the anchor that a heading has.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// fileName is what looks like a file or a directory of ours, in backticks.
var fileName = regexp.MustCompile("`((?:[a-z_]+/)*(?:[a-z_]+/|[a-z_]+\\.(?:go|lua|txt)))`")

// Names of files go out of date; those that CONTRIBUTING gives must be there. A
// file that is named without its directory may be in any.
func TestHouseContributingNamesFiles(t *testing.T) {
	files := map[string]bool{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		files[d.Name()] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := fileName.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	if len(named) < 40 {
		t.Errorf("CONTRIBUTING.md names %d files", len(named))
	}
	for _, m := range named {
		_, err := os.Stat(m[1])
		if err != nil && (strings.Contains(m[1], "/") || !files[m[1]]) {
			t.Errorf("CONTRIBUTING.md names %s, which is not there", m[1])
		}
	}
}

// reason is a word for what is wrong with Redis, where it is made.
var reason = regexp.MustCompile(`Class(?:Unavailable|Misconfigured|Key), "([a-z]+)"|return "([a-z]+)"`)

// Who is woken by a reason finds it in the runbook.
func TestHouseRunbookHasReasons(t *testing.T) {
	source, runbook := read(t, "internal/redisstore/errors.go"), read(t, "docs/operations.md")
	_, source, found := strings.Cut(source, "ClassKey\n)\n")
	_, source, cut := strings.Cut(source, "\n}\n") // after Class.String
	reasons := reason.FindAllStringSubmatch(source, -1)
	if !found || !cut || len(reasons) < 25 {
		t.Fatalf("%d reasons", len(reasons))
	}
	for _, m := range reasons {
		if word := m[1] + m[2]; !strings.Contains(runbook, "`"+word+"`") {
			t.Errorf("docs/operations.md does not say what to do about %q", word)
		}
	}
}

// testCommand is a command of the documents that runs some tests of a package.
var testCommand = regexp.MustCompile(`go test (?:-v )?-run '?([^' ]+)'? (?:-v )?\./([a-z/.]+)`)

// testFunc is a test in its file.
var testFunc = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`)

// A command that finds no test ends well, and shows nothing.
func TestHouseCommandsRunTests(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, doc := range append(docs, "README.md", "CONTRIBUTING.md") {
		for _, m := range testCommand.FindAllStringSubmatch(read(t, doc), -1) {
			commands++
			if m[1] != "^$" && m[2] != "..." && !slices.ContainsFunc(testsIn(t, m[2]), regexp.MustCompile(m[1]).MatchString) {
				t.Errorf("%s: %q runs no test", doc, m[0])
			}
		}
	}
	if commands < 10 {
		t.Errorf("%d commands in the documents", commands)
	}
}

// testsIn returns the names of the tests in a directory.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, m := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
			names = append(names, m[1])
		}
	}
	return names
}
