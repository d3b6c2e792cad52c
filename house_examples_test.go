package hybridlimit_test

import (
	"os"
	"strings"
	"testing"
)

// The steps that begin with nothing end with a program that is compiled and tested, and the
// README names the lines in which it differs from the quick start.
func TestHouseProgramWithMetrics(t *testing.T) {
	program, err := os.ReadFile("adapter/promlimit/example/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, "docs/http.md"), "```go\n"+string(program)+"```\n") {
		t.Error("docs/http.md does not contain adapter/promlimit/example/main.go as it is")
	}
	// A reader counts what has to be written: neither imports nor what stands in a comment.
	const mostLines = 15
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
	_, lines, found := strings.Cut(read(t, "README.md"), "two lines more:\n```go\n")
	lines, _, closed := strings.Cut(lines, "```\n")
	if !found || !closed || strings.Count(lines, "\n") != 2 {
		t.Fatal("README.md does not have the two lines for metrics")
	}
	for line := range strings.Lines(lines) {
		if !strings.Contains(string(program), "\n\t"+line) {
			t.Errorf("README.md has a line that is not in the program: %s", line)
		}
	}
}
