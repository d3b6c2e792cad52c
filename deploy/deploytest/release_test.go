package deploytest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// workflow is what is used of one.
type workflow struct {
	On struct {
		Push struct{ Tags []string }
	}
	Permissions map[string]string
	Jobs        map[string]struct {
		Steps []struct {
			Uses, Run string
			Env       map[string]string
		}
	}
}

// run runs a line of the workflow for a version, with one target, and returns where the files are.
func run(t *testing.T, line, version string) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	if !strings.HasSuffix(line, " dist") {
		t.Fatalf("run: %s", line)
	}
	cmd := exec.Command(need(t, "bash"), "-c", strings.TrimSuffix(line, "dist")+dir+" "+runtime.GOOS+"/"+runtime.GOARCH)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GITHUB_REF_NAME="+version)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	return dir, err
}

// used is an action with its major version.
var used = regexp.MustCompile(`uses: (\S+)`)

func TestRelease(t *testing.T) {
	text := read(t, ".github/workflows/release.yml")
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.On.Push.Tags, []string{"v*"}) || len(w.Permissions) != 1 || w.Permissions["contents"] != "write" || len(w.Jobs) != 1 {
		t.Errorf("%+v", w)
	}
	tested := read(t, ".github/workflows/ci.yml")
	for _, m := range used.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(tested, m[0]) {
			t.Errorf("%s is not what CI uses", m[1])
		}
	}
	steps := w.Jobs["release"].Steps
	at := slices.IndexFunc(steps, func(s struct {
		Uses, Run string
		Env       map[string]string
	}) bool {
		return strings.Contains(s.Run, "deploy/release.sh")
	})
	if at < 0 || at+1 >= len(steps) || !strings.Contains(steps[at+1].Run, ` "$GITHUB_REF_NAME" dist/* --verify-tag`) {
		t.Fatalf("%+v", steps)
	}
	tracked(t) // a release is made of a clone
	need(t, "sha256sum")
	t.Run("a version", func(t *testing.T) { release(t, steps[at].Run) })
	t.Run("no version", func(t *testing.T) {
		_, err := run(t, steps[at].Run, "v1.2.3; true")
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%v", err)
		}
	})
}

// release makes one, for this machine, and asks the program what it is.
func release(t *testing.T, line string) {
	const version = "v0.0.0-test"
	dir, err := run(t, line, version)
	if err != nil {
		t.Fatal(err)
	}
	name := "hybridlimit-" + version + "-" + runtime.GOOS + "-" + runtime.GOARCH
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || string(out) != name+": OK\n" {
		t.Errorf("%v: %s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, name), "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var is struct{ Version, Revision string }
	if err := json.Unmarshal(out, &is); err != nil {
		t.Fatal(err)
	}
	head := exec.Command("git", "rev-parse", "HEAD")
	head.Dir = root
	commit, err := head.Output()
	if err != nil || is.Version != version || is.Revision != strings.TrimSpace(string(commit)) {
		t.Errorf("the release of %s is %+v, %v", commit, is, err)
	}
	// The tag that it needs is its own.
	tags := exec.Command("git", "tag", "--list", "*"+version)
	tags.Dir = root
	if out, err := tags.Output(); err != nil || len(out) > 0 {
		t.Errorf("it has left the tag %s behind, %v", out, err)
	}
}
