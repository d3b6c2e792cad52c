package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// parserOf returns what reads a command line.
func parserOf(t *testing.T, into *commands) *kong.Kong {
	t.Helper()
	parser, err := (&program{out: io.Discard, errOut: io.Discard}).parser(into, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// command returns a command.
func command(t *testing.T, k *kong.Kong, name string) *kong.Node {
	t.Helper()
	at := slices.IndexFunc(k.Model.Children, func(n *kong.Node) bool { return n.Name == name })
	if at < 0 {
		t.Fatalf("there is no command %s", name)
	}
	return k.Model.Children[at]
}

func TestEachFlagOfServeHasAVariable(t *testing.T) {
	for _, f := range command(t, parserOf(t, new(commands)), "serve").Flags {
		if want := "HYBRIDLIMIT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")); !slices.Equal(f.Envs, []string{want}) {
			t.Errorf("--%s has the variables %q, want %s", f.Name, f.Envs, want)
		}
	}
	t.Setenv("HYBRIDLIMIT_PREFIX", "variable")
	for want, args := range map[string][]string{"variable": {"serve", "--rules=/r.yaml"}, "flag": {"serve", "--rules=/r.yaml", "--prefix=flag"}} {
		var line commands
		if _, err := parserOf(t, &line).Parse(args); err != nil || line.Serve.Prefix != want {
			t.Errorf("%q, %v, want that of the %s", line.Serve.Prefix, err, want)
		}
	}
}

// A variable that is empty is none, as in a file of variables that lists all of them.
func TestEmptyVariables(t *testing.T) {
	for _, f := range command(t, parserOf(t, new(commands)), "serve").Flags {
		t.Setenv(f.Envs[0], "")
	}
	cli(t, "serve").want(t, exitUsage).says(t, "missing flags: --rules=FILE")
	s := runServe(t, "--alone", "--rules", rulesAt(t, someRules), "--stop-timeout", "1m")
	s.end(t, exitOK)
}

// What is set for a server is nothing to the other commands, except which Redis and which rules.
func TestVariablesOfOtherCommands(t *testing.T) {
	shared := []string{"RULES", "REDIS", "REDIS_PASSWORD_FILE", "CLUSTER", "PREFIX", "SHARDS", "TIMEOUT", "CA", "CERT", "KEY_FILE"}
	k := parserOf(t, new(commands))
	for _, c := range k.Model.Children {
		for _, f := range c.Flags {
			if c.Name != "serve" && len(f.Envs) > 0 && !slices.Contains(shared, strings.TrimPrefix(f.Envs[0], "HYBRIDLIMIT_")) {
				t.Errorf("%s --%s is set by %s", c.Name, f.Name, f.Envs[0])
			}
		}
	}
	for _, f := range command(t, k, "serve").Flags {
		t.Setenv(f.Envs[0], "nonsense")
	}
	cli(t, "validate", write(t, "rules.yaml", someRules)).want(t, exitOK)
	cli(t, "version").want(t, exitOK)
}

func TestBadVariablesAreNamed(t *testing.T) {
	rules := rulesAt(t, someRules)
	for variable, value := range map[string]string{
		"ALONE": "perhaps", "FALLBACK": "hope", "LOG_LEVEL": "loud", "MAX_KEYS": "many", "RESP_IDLE_TIMEOUT": "10", // what kong says
		"COMMAND_TIMEOUT": "0s", "GRPC": "127.0.0.1:nonsense", "RESP": "127.0.0.1", "HTTP": "127.0.0.1:65536", "TLS_CERT": "none.pem", // what serve says
		"STOP_TIMEOUT": "2h", "STOP_DELAY": "-1s", "SHARDS": "-1", "RESP_MAX_CONNS": "-1", "PREFIX": "{", // what packages say
	} {
		t.Run(variable, func(t *testing.T) {
			flag := "--" + strings.ToLower(strings.ReplaceAll(variable, "_", "-"))
			variable = "HYBRIDLIMIT_" + variable
			t.Setenv(variable, value)
			args := []string{"serve", "--rules", rules, "--redis=redis://127.0.0.1:1"}
			for _, listens := range []string{"--grpc", "--resp", "--check", "--http"} {
				if listens != flag {
					args = append(args, listens+"=127.0.0.1:0")
				}
			}
			o := cli(t, args...)
			if o.want(t, exitUsage); !strings.Contains(o.err, variable) || !strings.Contains(o.err, flag) || strings.Contains(o.err, "Options") {
				t.Error(o.err)
			}
			os.Unsetenv(variable)
			if flag != "--alone" { // as a flag it is named alone
				if o := cli(t, append(args, flag+"="+value)...).want(t, exitUsage); strings.Contains(o.err, variable) {
					t.Error(o.err)
				}
			}
		})
	}
	t.Setenv("HYBRIDLIMIT_REDIS", "redis://x:secret%zz@h")
	if o := cli(t, "serve", "--rules", rules).want(t, exitUsage).says(t, "(from HYBRIDLIMIT_REDIS)"); strings.Contains(o.err, "secret") {
		t.Error(o.err)
	}
}
