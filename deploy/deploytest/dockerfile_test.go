package deploytest

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// readStages parses the Dockerfile. What BuildKit would warn of is an error.
func readStages(t *testing.T) []instructions.Stage {
	t.Helper()
	text := []byte(read(t, "deploy/Dockerfile"))
	file, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range file.Warnings {
		t.Errorf("deploy/Dockerfile: %s", w.Short)
	}
	stages, meta, err := instructions.Parse(file.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, _ []parser.Range) {
			t.Errorf("deploy/Dockerfile: %s: %s", rule, message)
		},
	}))
	if err != nil || len(meta) != 0 || len(stages) != 2 {
		t.Fatalf("%d stages, %v before them, %v", len(stages), meta, err)
	}
	return stages
}

// all returns the commands of one kind.
func all[T any](stage instructions.Stage) (list []T) {
	for _, c := range stage.Commands {
		if c, ok := c.(T); ok {
			list = append(list, c)
		}
	}
	return list
}

// one returns the only command of its kind.
func one[T any](t *testing.T, stage instructions.Stage) T {
	t.Helper()
	list := all[T](stage)
	if len(list) != 1 {
		t.Fatalf("%d times %T", len(list), *new(T))
	}
	return list[0]
}

// tag is a version in the name of an image: all of its numbers, not a branch of them.
var tag = regexp.MustCompile(`^[a-z/]+:v?[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9]+)?$`)

// The compiler is one that the modules allow.
func TestDockerfileCompiler(t *testing.T) {
	first := readStages(t)[0].BaseName
	if !tag.MatchString(first) {
		t.Errorf("the compiler is %s", first)
	}
	version := strings.TrimPrefix(first, "golang:")
	for _, module := range []string{"go.mod", "cmd/hybridlimit/go.mod"} {
		_, least, _ := strings.Cut(read(t, module), "\ngo ")
		least, _, _ = strings.Cut(least, "\n")
		if !strings.HasPrefix(version, strings.TrimSuffix(least, ".0")+".") {
			t.Errorf("Go %s is to build %s, which wants %s", version, module, least)
		}
	}
}

// What runs in the image: who, by which command, and how Docker sees that it does.
func TestDockerfileImage(t *testing.T) {
	stages := readStages(t)
	image := stages[len(stages)-1]
	there := []string{}
	for _, c := range all[*instructions.CopyCommand](image) {
		there = append(there, c.DestPath)
	}
	if len(all[*instructions.RunCommand](image)) > 0 {
		t.Error("there is nothing in the image that could run a command")
	}
	if user := one[*instructions.UserCommand](t, image).User; !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(user) {
		t.Errorf("the user is %s: Kubernetes knows that it is not root only by a number", user)
	}
	entry := one[*instructions.EntrypointCommand](t, image)
	if entry.PrependShell || len(entry.CmdLine) != 1 || !slices.Contains(there, entry.CmdLine[0]) {
		t.Errorf("ENTRYPOINT %q; in the image are %q", entry.CmdLine, there)
	}
	health := one[*instructions.HealthCheckCommand](t, image).Health
	if len(health.Test) < 2 || health.Test[0] != "CMD" || !slices.Contains(there, health.Test[1]) {
		t.Errorf("HEALTHCHECK %q; in the image are %q", health.Test, there)
	}
	if health.Interval <= 0 || health.Timeout <= 0 || health.Retries <= 0 || health.StartPeriod <= 0 {
		t.Errorf("HEALTHCHECK %+v", health)
	}
	command := one[*instructions.CmdCommand](t, image)
	if command.PrependShell {
		t.Errorf("CMD %q needs a shell", command.CmdLine)
	}
	// Compose starts it in the same way, and says more.
	p := readProject(t, nil)
	for _, s := range servers(t, p) {
		set := flags(t, s.Command)
		for name, value := range flags(t, command.CmdLine) {
			if set[name] != value {
				t.Errorf("%s has %s=%s, and the image %s", s.Name, name, set[name], value)
			}
		}
		if c := s.HealthCheck; !slices.Equal([]string(c.Test), health.Test) || *c.Retries != uint64(health.Retries) ||
			c.Interval.String() != health.Interval.String() || c.Timeout.String() != health.Timeout.String() ||
			c.StartPeriod.String() != health.StartPeriod.String() || c.StartInterval.String() != health.StartInterval.String() {
			t.Errorf("%s has the check %+v, and the image %+v", s.Name, c, health)
		}
		if ports := targets(s); !slices.Equal(one[*instructions.ExposeCommand](t, image).Ports, ports) {
			t.Errorf("%s has the ports %q, and the image %q", s.Name, ports, one[*instructions.ExposeCommand](t, image).Ports)
		}
	}
}

// Without one of its files git would say that the program is not what the commit has.
func TestDockerfileContext(t *testing.T) {
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, "deploy/Dockerfile.dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	left := func(name string) bool {
		out, err := ignored.MatchesOrParentMatches(name)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, name := range append(tracked(t), ".git/HEAD", ".git/packed-refs", ".git/objects/pack/pack-1.idx", ".git/refs/tags/v1.0.0") {
		if left(name) {
			t.Errorf("%s is left out", name)
		}
	}
	// .git/config may hold the token by which CI has cloned.
	for _, name := range []string{".git/config", ".git/logs/HEAD", "deploy/.env", "hybrid/hybrid.test", "cpu.prof", "tmp/x"} {
		if !left(name) {
			t.Errorf("%s is not left out", name)
		}
	}
}

// build runs what the Dockerfile runs, in the work tree, and returns the program.
func build(t *testing.T) string {
	t.Helper()
	stage, dir, env := readStages(t)[0], "/", os.Environ()
	for _, w := range all[*instructions.WorkdirCommand](stage) {
		if dir = path.Join(dir, w.Path); path.IsAbs(w.Path) {
			dir = w.Path
		}
	}
	inTree, found := strings.CutPrefix(dir, "/src/")
	if c := one[*instructions.CopyCommand](t, stage); !found || c.SourcePaths[0] != "." {
		t.Fatalf("%s, and then %s", c, dir)
	}
	for _, args := range all[*instructions.ArgCommand](stage) {
		for _, arg := range args.Args {
			switch {
			case arg.Key == "TARGETOS":
				env = append(env, "TARGETOS="+runtime.GOOS)
			case arg.Key == "TARGETARCH":
				env = append(env, "TARGETARCH="+runtime.GOARCH)
			default:
				env = append(env, arg.Key+"="+arg.ValueString())
			}
		}
	}
	run := one[*instructions.RunCommand](t, stage)
	out := t.TempDir()
	if n := strings.Count(run.CmdLine[0], " /out/"); len(run.CmdLine) != 1 || !run.PrependShell || n != 1 {
		t.Fatalf("RUN %q", run.CmdLine)
	}
	cmd := exec.Command(need(t, "sh"), "-c", strings.Replace(run.CmdLine[0], " /out/", " "+out+"/", 1))
	cmd.Dir, cmd.Env = filepath.Join(root, inTree), env
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return filepath.Join(out, "hybridlimit")
}

// In an image from scratch there is nothing that it could be linked to.
func TestDockerfileProgramIsStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("its programs are of another format")
	}
	program, err := elf.Open(build(t))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it needs %v", p.Type)
		}
	}
}
