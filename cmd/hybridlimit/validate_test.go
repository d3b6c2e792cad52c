package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"good.yaml": rulesFile,
		"bad.yaml":  "rules:\n  api:\n    algorithm: sliding-windw\n    limit: many\n    per: 1m\n  login:\n    colour: red\n",
		"good.json": `{"rules": {"api": {"algorithm": "sliding-window", "limit": 5, "per": "1m"}}}`,
		"empty":     "",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cli(t, "validate", "good.yaml", "good.json").want(t, exitOK).says(t,
		"good.yaml: valid: 2 rules, 2 plans, 3 overrides", "good.json: valid: 1 rule, 0 plans, 0 overrides")
	o := cli(t, "validate", "bad.yaml", "good.yaml", "empty", "missing.yaml")
	if o.code != exitFound {
		t.Errorf("exit code %d", o.code)
	}
	o.says(t, "bad.yaml:3:16: rules.api.algorithm: ", "bad.yaml:4:12: rules.api.limit: ", "bad.yaml:7:5: rules.login.colour: ", "good.yaml: valid", "empty:1:1: ", "missing.yaml: cannot be read")
	var got struct{ Files []fileJSON }
	cli(t, "validate", "--json", "bad.yaml", "good.yaml").want(t, exitFound).read(t, &got)
	bad, good := got.Files[0], got.Files[1]
	if bad.Valid || bad.Size != nil || len(bad.Problems) < 3 || bad.Problems[0].Line != 3 || bad.Problems[0].Column != 16 || bad.Problems[0].Field != "rules.api.algorithm" ||
		!good.Valid || good.Size.Rules != 2 || len(good.Problems) != 0 {
		t.Errorf("%+v", got)
	}
}

// A mistake lists the fields that there are, and so does the page, which has this output.
func TestValidateInDocs(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	bad := "rules:\n  api:\n    algorithm: sliding-window\n    limit: many\n    per: 1m\n  login:\n    colour: red\n    limits: 5/m\n"
	t.Chdir(filepath.Dir(write(t, "bad.yaml", bad)))
	if err := os.WriteFile("rules.yaml", []byte(rulesFile), 0o600); err != nil {
		t.Fatal(err)
	}
	o := cli(t, "validate", "rules.yaml", "bad.yaml")
	if o.code != exitFound {
		t.Errorf("exit code %d", o.code)
	}
	t.Chdir(here)
	o.golden(t, "validate", nil)
}

func TestValidateWhatIsPipedIn(t *testing.T) {
	piped(t, rulesFile, "validate", "-").want(t, exitOK).says(t, "-: valid: 2 rules")
	piped(t, "rules: {", "validate", "-").want(t, exitFound).says(t, "-:1:")
}

// A good file of envoyproxy/ratelimit is one of ours.
func TestValidateEnvoy(t *testing.T) {
	file := write(t, "envoy.yaml", "domain: web\ndescriptors:\n  - key: path\n    rate_limit: {unit: minute, requests_per_unit: 5}\n")
	cli(t, "validate", file).want(t, exitOK).says(t, "1 domain with 1 descriptor")
}

// What serve will refuse is found beforehand, and only if somebody asks for serve: elsewhere
// the same file is good.
func TestValidateForServe(t *testing.T) {
	exact := "rules:\n  exact: {algorithm: sliding-log, limit: 5, per: 1m}\n  free: {algorithm: sliding-log, limit: 5, per: 1m, unlimited: true}\n"
	file := write(t, "log.yaml", exact)
	cli(t, "validate", file).want(t, exitOK)
	cli(t, "validate", "--for=any", file).want(t, exitOK)
	const why = ":2:10: rules.exact: "
	for name, o := range map[string]outcome{
		file: cli(t, "validate", "--for", "serve", file), "-": piped(t, exact, "validate", "--for", "serve", "-"),
	} {
		if o.says(t, name+why); o.code != exitFound {
			t.Errorf("%s: exit code %d", name, o.code)
		}
	}
	cli(t, "validate", "--for", "serve", write(t, "good.yaml", rulesFile)).want(t, exitOK).says(t, "valid: 2 rules")
	cli(t, "validate", "--for", "nobody", file).want(t, exitUsage)
	// And serve says the same.
	if o := cli(t, "serve", "--alone", "--grpc=-", "--check=-", "--http=-", "--resp=127.0.0.1:0", "--rules", file); o.code != exitUsage || !strings.Contains(o.err, file+why) {
		t.Errorf("exit code %d, %s", o.code, o.err)
	}
}

func TestVersion(t *testing.T) {
	cli(t, "version").want(t, exitOK).says(t, "hybridlimit ", ", go1.", "layout 1 in Redis")
	var v versionJSON
	cli(t, "version", "--json").want(t, exitOK).read(t, &v)
	if v.Go == "" || v.Layout != "1" || v.Version == "" {
		t.Errorf("%+v", v)
	}
	if flag, command := cli(t, "--version").want(t, exitOK), cli(t, "version"); flag != command {
		t.Errorf("%+v, and the command prints %+v", flag, command)
	}
	const want = "hybridlimit v1.2.3, commit 0123456789ab and changes, go1.26, layout 1 in Redis"
	if got := (versionJSON{Version: "v1.2.3", Revision: "0123456789abcdef", Modified: true, Go: "go1.26", Layout: "1"}).String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// docs/cli.md shows what commands print; the parts that tests keep are there as they are.
func TestDocsShowRealOutput(t *testing.T) {
	docs, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(docs), string(text)) {
			t.Errorf("docs/cli.md does not have %s as it is:\n%s", file, text)
		}
	}
	for code, word := range map[int]string{exitOK: "fine", exitFound: "found", exitUsage: "flags", exitRedis: "Redis", exitFailed: "else"} {
		_, row, found := strings.Cut(string(docs), fmt.Sprintf("\n| %d |", code))
		row, _, _ = strings.Cut(row, "\n")
		if !found || !strings.Contains(row, word) {
			t.Errorf("docs/cli.md does not say %q of exit code %d", word, code)
		}
	}
}
