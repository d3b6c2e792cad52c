package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// printed returns what a command prints for programs: with lines of any length.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	o := cli(t, args...)
	if o.code != exitOK || o.err != "" {
		t.Fatalf("%+v", o)
	}
	return o.out
}

// shell runs a script with a shell, after the completion for it; it skips the test without one.
func shell(t *testing.T, name, script string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	file := write(t, "completion", printed(t, "completion", name))
	cmd := exec.Command(path, append(args, "-c", "source "+file+"\n"+script)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%v: %s%s", err, out, errs.String())
	}
	return string(out)
}

// completed is what is completed. The other shells ask the same function, or list the same.
var completed = []struct{ line, want string }{
	{"hybridlimit serve --fall", "--fallback"},
	{"hybridlimit serve --fallback=fu", "full-limit"},
	{"hybridlimit serve --fallback ", "fair-share full-limit fail-open fail-closed"},
	{"hybridlimit serve --fallback fail-", "fail-open fail-closed"},
	{"hybridlimit serve --log-level warn --shad", "--shadow"},
	{"hybridlimit --json val", "validate"},
	{"hybridlimit validate --for ", "any serve"},
	{"hybridlimit completion ", "bash zsh fish"},
	{"hybridlimit top --scan 5 --ne", "--near"},
}

// wordsOfLine returns a line as bash and zsh give it to functions.
func wordsOfLine(line string) string {
	words := strings.Split(strings.ReplaceAll(line, "=", " = "), " ")
	for i, word := range words {
		words[i] = "'" + word + "'"
	}
	return strings.Join(words, " ")
}

// answers prints what the function completes.
func answers(line string) string {
	return "COMP_WORDS=(" + wordsOfLine(line) + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _hybridlimit; echo ${COMPREPLY[@]}"
}

func TestCompletionBash(t *testing.T) {
	if got := shell(t, "bash", "complete -p hybridlimit"); strings.TrimSpace(got) != "complete -o default -F _hybridlimit hybridlimit" {
		t.Errorf("%q", got)
	}
	for _, c := range completed {
		if got := strings.TrimSpace(shell(t, "bash", answers(c.line))); got != c.want && !strings.HasPrefix(got, c.want+" --") {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	// All flags, and after one that takes a value files alone.
	for _, c := range parserOf(t, new(commands)).Model.Children {
		got := strings.Fields(shell(t, "bash", answers("hybridlimit "+c.Name+" --")))
		for _, f := range flagsOf(c) {
			if !slices.Contains(got, "--"+f.Name) {
				t.Errorf("%s: --%s is not completed", c.Name, f.Name)
			}
		}
		if len(got) != len(flagsOf(c)) {
			t.Errorf("%s: %q", c.Name, got)
		}
	}
	if got := shell(t, "bash", answers("hybridlimit serve --rules s")); strings.TrimSpace(got) != "" {
		t.Errorf("%q in place of files", got)
	}
}

func TestCompletionOfAnotherShell(t *testing.T) {
	cli(t, "completion", "csh").want(t, exitUsage).says(t, "bash", "zsh", "fish")
}

func TestMan(t *testing.T) {
	page := printed(t, "man")
	if !strings.HasPrefix(page, ".TH HYBRIDLIMIT 1 ") {
		t.Error(page)
	}
	for line := range strings.Lines(page) {
		macro, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if known := []string{".TH", ".nh", ".SH", ".SS", ".TP", ".PP", ".B", ".I"}; line[0] == '\'' || line[0] == '.' && !slices.Contains(known, macro) || line == "\n" {
			t.Errorf("%q", line)
		}
	}
	k := parserOf(t, new(commands))
	for _, c := range append([]*kong.Node{k.Model.Node}, k.Model.Children...) {
		for _, f := range c.Flags {
			if !strings.Contains(page, "\n.B "+roff(f.String())+"\n"+roff(helpOf(f.Value))+"\n") {
				t.Errorf("%s --%s is not there", c.Name, f.Name)
			}
		}
		if !strings.Contains(page, roff(c.Help)+"\n") {
			t.Errorf("%q is not there", c.Help)
		}
	}
	if strings.Count(page, "\n.B \\-\\-redis=URL") != 2 { // of serve, and of all others
		t.Error("what is the same is said again and again")
	}
	if got := roff(".a\\b-c…"); got != `\&.a\eb\-c\[u2026]` {
		t.Errorf("%q", got)
	}
}
