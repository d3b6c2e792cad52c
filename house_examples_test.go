package hybridlimit_test

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// servers are examples that run until somebody ends them. Their own tests do that.
var servers = []string{"./adapter/promlimit/example"}

var command = regexp.MustCompile("(?m)^\\| `go run (\\S+)` \\|")

// examples returns the directories of all examples, in the way that go run takes them.
func examples(t *testing.T) (dirs []string) {
	t.Helper()
	for _, pattern := range []string{"examples/*/main.go", "adapter/*/example/main.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			dirs = append(dirs, "./"+path.Dir(filepath.ToSlash(f)))
		}
	}
	return dirs
}

// There is one list of all examples, and each says by which command it is run.
func TestHouseExamplesAreListed(t *testing.T) {
	const mostLines = 120
	var listed []string
	for _, m := range command.FindAllStringSubmatch(read(t, "examples/README.md"), -1) {
		listed = append(listed, m[1])
	}
	dirs := examples(t)
	slices.Sort(listed)
	slices.Sort(dirs)
	if !slices.Equal(listed, dirs) {
		t.Errorf("examples/README.md lists %v, and there are %v", listed, dirs)
	}
	for _, dir := range dirs {
		program := read(t, path.Join(dir, "main.go"))
		if doc, _, _ := strings.Cut(program, "\npackage "); !strings.Contains(doc, "go run "+dir) && !slices.Contains(servers, dir) {
			t.Errorf("%s does not begin with its command", dir)
		}
		if n := strings.Count(program, "\n"); n > mostLines {
			t.Errorf("%s has %d lines, more than %d", dir, n, mostLines)
		}
	}
}

// The commands do what is said of them: the programs run, print something and end by
// themselves.
func TestHouseExamplesRun(t *testing.T) {
	workspace, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range examples(t) {
		if slices.Contains(servers, dir) {
			continue
		}
		t.Run(dir, func(t *testing.T) {
			if name := strings.TrimSpace(string(workspace)); (name == "" || name == "off") && strings.HasPrefix(dir, "./adapter/") {
				t.Skip("is in a module of its own, and there is no workspace")
			}
			out, err := exec.Command("go", "run", dir).Output()
			if bad := new(exec.ExitError); errors.As(err, &bad) {
				t.Fatalf("%v: %s", err, bad.Stderr)
			}
			if err != nil || len(out) == 0 {
				t.Errorf("%v, and it has printed %q", err, out)
			}
		})
	}
}

// The steps that begin with nothing end with a program that is compiled and tested.
func TestHouseProgramWithMetrics(t *testing.T) {
	program, err := os.ReadFile("adapter/promlimit/example/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, "docs/start.md"), "```go\n"+string(program)+"```\n") {
		t.Error("docs/start.md does not contain adapter/promlimit/example/main.go as it is")
	}
	// A reader counts what has to be written: neither imports nor what stands in a comment.
	const mostLines = 19
	written := 0
	_, body, _ := strings.Cut(string(program), "\n)\n")
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" && line != "}" && !strings.HasPrefix(line, "//") {
			written++
		}
	}
	if written == 0 || written > mostLines {
		t.Errorf("the program has %d lines, more than %d", written, mostLines)
	}
}

// The pieces of the page about HTTP are joined, in their order, and compile among declarations of what
// the whole program has.
func TestHouseHTTPPieces(t *testing.T) {
	var pieces strings.Builder
	n := 0
	for _, m := range shown.FindAllStringSubmatch(read(t, "docs/http.md"), -1) {
		if !strings.Contains(m[1], "\npackage main\n") { // the whole program is tested by itself
			pieces.WriteString(m[1])
			n++
		}
	}
	if n < 6 {
		t.Errorf("docs/http.md has %d pieces", n)
	}
	vet(t, `package main

import (
	"errors"
	"iter"
	"net/http"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"

	"`+module+`/adapter/httplimit"
	"`+module+`/hybrid"
	"`+module+`/limit"
	"`+module+`/remote"
)

func pieces(lim *hybrid.Limiter, rdb redis.UniversalClient, mux *http.ServeMux, perUser *limit.Rule, user func(*http.Request) string,
	items http.Handler, model func(*http.Request) iter.Seq[string]) []any {
	`+pieces.String()+`
	return []any{client}
}

func main() {}
`)
}

// Examples are copied. They use nothing that only tests of their package have, and each call is in one.
func TestHouseExamplesOfCalls(t *testing.T) {
	for _, dir := range []string{"clock", "limit", "local", "hybrid", "remote"} {
		files, err := filepath.Glob(dir + "/example*_test.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no examples: %v", dir, err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", append([]string{"vet"}, files...)...).CombinedOutput(); err != nil {
			t.Errorf("examples of %s use what users do not have: %s", dir, out)
		}
	}
	var text strings.Builder
	for _, pattern := range []string{"*/example*_test.go", "examples/*/*.go", "bench/migrate/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text.WriteString(read(t, f))
		}
	}
	shown := text.String()
	call := regexp.MustCompile(`^(?:func |method \(\*?(\w+)\) |interface \w+\.)(\w+)`)
	// What other packages call: encoders, fmt, errors and log/slog, and Inside.
	others := regexp.MustCompile(`^(Marshal|Unmarshal|String$|LogValue$|Error$|Unwrap$|Inside$)`)
	for _, dir := range []string{"clock", "limit", "local", "hybrid", "remote"} {
		for _, line := range api(t, dir) {
			if m := call.FindStringSubmatch(line); m != nil && !others.MatchString(m[2]) && !regexp.MustCompile(`\b`+m[2]+`\(`).MatchString(shown) {
				t.Errorf("%s: no example calls %s", dir, m[2])
			}
		}
	}
}
