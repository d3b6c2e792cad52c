package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// one returns a file with one rule.
func one(limit int) string {
	return fmt.Sprintf("rules:\n  api: {algorithm: fixed-window, limit: %d, per: 1h}\n", limit)
}

// limitOf returns the limit that is in force.
func limitOf(f *File) int64 { return f.Set().Rule("api").Limit() }

// watched follows a file that is read soon after it has changed, and that is not polled
// while a test runs: what is seen is what the system has told.
func watched(t *testing.T, path string, o Options) *File {
	t.Helper()
	o.Quiet, o.Poll = time.Millisecond, time.Hour
	f, err := Watch(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// A volume of Kubernetes: rules.yaml leads to ..data/rules.yaml, and ..data to a directory
// whose name has the time. An update replaces ..data by renaming another link.
func TestWatchFollowsASymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) string {
		name := fmt.Sprintf("..2026_%d", n)
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "rules.yaml"), one(n))
		return name
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	link(version(1), "..data")
	link(filepath.Join("..data", "rules.yaml"), "rules.yaml")
	f := watched(t, filepath.Join(dir, "rules.yaml"), Options{})
	for n := 2; n <= 4; n++ {
		link(version(n), "..data_tmp")
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", n-1))); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprint("version ", n), func() bool { return limitOf(f) == int64(n) })
	}
}

// A deployment that renames directories: of that the system tells, so that nobody waits for
// the polling.
func TestWatchDirectoryIsReplaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the system may not tell of it, and the polling finds it")
	}
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	version := func(n int) string {
		name := fmt.Sprint(dir, n)
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(name, "rules.yaml"), one(n))
		return name
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(version(1), dir)
	f := watched(t, filepath.Join(dir, "rules.yaml"), Options{})
	for n := 2; n < 6; n++ {
		next := version(n)
		move(dir, fmt.Sprint(dir, ".old", n))
		if n%2 == 0 {
			eventually(t, "the file is missed", func() bool { return f.Stats().LastError != "" })
		}
		move(next, dir)
		eventually(t, fmt.Sprint("directory ", n), func() bool { return limitOf(f) == int64(n) })
	}
	replace(t, filepath.Join(dir, "rules.yaml"), one(7))
	eventually(t, "the file in the last directory", func() bool { return limitOf(f) == 7 })
}

// Links that lead in a circle end.
func TestWayToEnds(t *testing.T) {
	dir := t.TempDir()
	for from, to := range map[string]string{"a": "b", "b": "a", "self": "self"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	if names := wayTo(filepath.Join(dir, "a", "rules.yaml")); !names[filepath.Join(dir, "a")] || !names[filepath.Join(dir, "b")] {
		t.Errorf("%v", names)
	}
	if names := wayTo(filepath.Join(dir, "none", "rules.yaml")); !names[filepath.Join(dir, "none")] {
		t.Errorf("%v", names)
	}
}
