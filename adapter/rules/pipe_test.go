//go:build unix

package rules

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// To open a pipe that nobody writes to would wait for ever.
func TestPipeIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(pipe); err == nil || !strings.Contains(err.Error(), "this is not a regular file") {
		t.Errorf("%v", err)
	}
}
