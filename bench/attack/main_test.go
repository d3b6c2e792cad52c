package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial)) }

// The program prints the row that is asked for, and its exit code agrees with the verdict.
func TestRun(t *testing.T) {
	var out, errs strings.Builder
	code := run([]string{"-run", "^fault/1x10$", "-scale", "0.02"}, &out, &errs)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[2], "| fault/1x10 | ") || errs.Len() > 0 {
		t.Fatalf("%q, %q", lines, errs.String())
	}
	for i := range lines {
		if n := strings.Count(lines[i], "|"); n != len(columns)+1 {
			t.Errorf("%d columns in %q, want %d", n-1, lines[i], len(columns))
		}
	}
	if missed := strings.Contains(lines[2], "MISSED"); (code == rig.ExitBroken) != missed || code != 0 && code != rig.ExitBroken {
		t.Errorf("exit code %d of %q", code, lines[2])
	}
	if code := run([]string{"-run", "nothing"}, &out, &errs); code != rig.ExitFailed || !strings.Contains(errs.String(), "attack: no row") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}
