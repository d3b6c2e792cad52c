package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// readUnit returns the settings of the unit by section and name, with each of their values.
func readUnit(t *testing.T) map[string][]string {
	t.Helper()
	settings, section := map[string][]string{}, ""
	for line := range strings.Lines(read(t, "deploy/hybridlimit.service")) {
		line = strings.TrimSpace(line)
		name, value, given := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case !given || section == "":
			t.Errorf("a line of no section, or without a value: %s", line)
		default:
			settings[section+"."+name] = append(settings[section+"."+name], value)
		}
	}
	return settings
}

func TestUnit(t *testing.T) {
	u := readUnit(t)
	only := func(name string) string {
		t.Helper()
		if len(u[name]) != 1 {
			t.Fatalf("%s is %q", name, u[name])
		}
		return u[name][0]
	}
	command := strings.Fields(only("Service.ExecStart"))
	if command[0] != "/usr/local/bin/hybridlimit" {
		t.Errorf("it starts %s", command[0])
	}
	set := flags(t, command[1:])
	help, err := exec.Command(build(t), "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range set {
		if !strings.Contains(string(help), " "+name+"=") {
			t.Errorf("hybridlimit serve has no flag %s", name)
		}
	}
	var need time.Duration
	for _, name := range []string{"--stop-delay", "--stop-timeout"} {
		d, err := time.ParseDuration(set[name])
		if need += d; err != nil {
			t.Error(err)
		}
	}
	if given, err := time.ParseDuration(only("Service.TimeoutStopSec")); err != nil || given < need+2*time.Second {
		t.Errorf("it is killed after %v, and may need %v: %v", given, need, err)
	}
	if files, err := strconv.Atoi(only("Service.LimitNOFILE")); err != nil || files < 12_000 {
		t.Errorf("%d open files are not enough for 10,000 connections: %v", files, err)
	}
	for name, want := range map[string]string{
		"ExecReload": "/bin/kill -HUP $MAINPID", "Restart": "on-failure", "DynamicUser": "yes", "RestartPreventExitStatus": "2",
		"EnvironmentFile": "-/etc/hybridlimit/environment",
	} {
		if got := only("Service." + name); got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
}

// withProgram writes the unit with a program that is there, in a directory of its own.
func withProgram(t *testing.T) string {
	t.Helper()
	text := strings.Replace(read(t, "deploy/hybridlimit.service"), "/usr/local/bin/hybridlimit", need(t, "true"), 1)
	file := filepath.Join(t.TempDir(), "hybridlimit.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// systemd reads it, and has nothing to say.
func TestUnitIsValid(t *testing.T) {
	out, err := exec.Command(need(t, "systemd-analyze"), "verify", "--man=no", withProgram(t)).CombinedOutput()
	if err != nil || strings.Contains(string(out), "hybridlimit.service") {
		t.Errorf("%v: %s", err, out)
	}
}

// What an attacker could do by it is little: 0 is nothing, 10 all.
func TestUnitIsHardened(t *testing.T) {
	const most = "20" // in tenths
	out, err := exec.Command(need(t, "systemd-analyze"), "security", "--offline=yes", "--no-pager", "--threshold="+most, withProgram(t)).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
