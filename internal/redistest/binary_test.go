package redistest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Every server that is installed is found once, and the one that the environment names
// first.
func TestBinaries(t *testing.T) {
	dir := t.TempDir()
	program := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("PATH", dir)
	t.Setenv(BinaryEnv, "")
	want := func(list ...string) {
		t.Helper()
		if got := Binaries(); !slices.Equal(got, list) {
			t.Errorf("%q, want %q", got, list)
		}
	}
	want()
	program("valkey-server")
	want("valkey-server")
	program("redis-server")
	want("redis-server", "valkey-server")
	other := program("other-server")
	t.Setenv(BinaryEnv, other)
	want(other, "redis-server", "valkey-server")
	if Default() != other {
		t.Errorf("the default is %q", Default())
	}
	t.Setenv(BinaryEnv, "valkey-server")
	want("valkey-server", "redis-server")
	if err := os.Remove(filepath.Join(dir, "redis-server")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("valkey-server", filepath.Join(dir, "redis-server")); err != nil {
		t.Fatal(err)
	}
	want("valkey-server") // as distributions have it that offer one for the other
}
