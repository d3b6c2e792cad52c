package deploytest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v4"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the project, and files what is tested.
const root, files = "../..", ".."

// read returns the text of a file, by its path in the project.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// strict reads YAML into a type. A field that it does not have is an error, and so is a second
// document.
func strict(t *testing.T, name string, into any) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader([]byte(read(t, name))))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Errorf("%s has more than one document: %v", name, err)
	}
}

// absolute returns a path as it is without "..".
func absolute(t *testing.T, name string) string {
	t.Helper()
	at, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// need returns the path of a program. Without it the test is skipped, or fails in CI.
func need(t *testing.T, program string) string {
	t.Helper()
	at, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("%s is not installed", program)
	}
	return at
}

// tracked returns the files that git knows. Where there is no git the test is skipped.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command(need(t, "git"), "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("no clone of git: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// flags returns the flags of hybridlimit serve, by name.
func flags(t *testing.T, command []string) map[string]string {
	t.Helper()
	if len(command) == 0 || command[0] != "serve" {
		t.Fatalf("the command is %q", command)
	}
	set := map[string]string{}
	for _, arg := range command[1:] {
		name, value, given := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "--") || !given {
			t.Errorf("argument %q", arg)
		}
		set[name] = value
	}
	return set
}
