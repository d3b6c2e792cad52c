package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// build builds the program as users do.
func build(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hybridlimit.exe")
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// From the command line to Redis and back, through the program as it is shipped.
func TestEndToEnd(t *testing.T) {
	s, flags := real(t, healthy...)
	file := build(t)
	run := func(in string, args ...string) outcome {
		cmd := exec.Command(file, args...)
		var out, errOut bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errOut
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	}
	rules := "--rules=" + write(t, "rules.yaml", rulesFile)
	run(rulesFile, "validate", "-").want(t, exitOK)
	run("rules: 7", "validate", "-").want(t, exitFound)
	run("", with(flags, "set", "acme", "999", "--rule=api", rules)...).want(t, exitOK).says(t, "acme api 999 1,000 1 now")
	run("", with(flags, "peek", "acme", "--rule=api", rules)...).want(t, exitOK).says(t, "acme api 999 1,000 1 now")
	run("", with(flags, "top", rules)...).want(t, exitOK).says(t, "acme api 999")
	run("", with(flags, "reset", "acme", "--rule=api", rules)...).want(t, exitOK).says(t, "acme api 0 1,000")
	run("", with(flags, "quarantined")...).want(t, exitOK)
	run("", with(flags, "nodes")...).want(t, exitOK)
	run("", with(flags, "watch", "--count=1")...).want(t, exitOK)
	run("", append([]string{"doctor", at(s), "--timeout=1m"}, patient...)...).want(t, exitOK)
	do(t, s, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	run("", append([]string{"doctor", at(s), "--timeout=1m"}, patient...)...).want(t, exitFound).says(t, "> CONFIG SET maxmemory-policy noeviction")
	run("", "version", "--json").want(t, exitOK)
	run("", "peek").want(t, exitUsage)
	o := run("", "nodes", "--redis=redis://127.0.0.1:1").want(t, exitRedis)
	if strings.Count(o.err, "\n") != 1 {
		t.Errorf("more than the one line: %s", o.err)
	}
	t.Run("interrupted", func(t *testing.T) { interrupt(t, exec.Command(file, with(flags, "watch", "--interval=10ms")...)) })
}

// interrupt runs watch until somebody has seen enough of it, which is no failure.
func interrupt(t *testing.T, watch *exec.Cmd) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such signal for another process")
	}
	var errOut bytes.Buffer
	interrupted := false
	watch.Stdout, watch.Stderr = &lines{then: func(line string) {
		if !interrupted && !strings.Contains(line, "TIME") {
			interrupted = true
			if err := watch.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}}, &errOut
	if err := watch.Run(); err != nil || errOut.Len() > 0 {
		t.Errorf("%v: %s", err, errOut.String())
	}
}
