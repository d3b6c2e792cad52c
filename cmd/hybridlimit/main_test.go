package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// asProgram is set in the environment of a test binary that is to be the program.
const asProgram = "HYBRIDLIMIT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	redis.SetLogger(silence{})
	for _, name := range os.Environ() { // what the user has set is not for tests
		if name, _, _ := strings.Cut(name, "="); strings.HasPrefix(name, "HYBRIDLIMIT_") {
			os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

// outcome is what a command has printed, and its exit code.
type outcome struct {
	code     int
	out, err string
}

// cli runs a command.
func cli(t testing.TB, args ...string) outcome {
	t.Helper()
	return piped(t, "", args...)
}

// piped is cli with something piped in.
func piped(t testing.TB, in string, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	p := &program{ctx: t.Context(), out: &out, errOut: &errOut, in: strings.NewReader(in)}
	code := p.run(args)
	return outcome{code, out.String(), errOut.String()}
}

// want checks the exit code, and that people get no more than 80 columns.
func (o outcome) want(t testing.TB, code int) outcome {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit code %d, want %d\n%s%s", o.code, code, o.out, o.err)
	}
	if !strings.HasPrefix(o.out, "{") {
		for line := range strings.Lines(o.out) {
			if n := ansi.StringWidth(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("a line of %d columns: %s", n, line)
			}
		}
		if strings.Contains(o.out, "\x1b") {
			t.Errorf("colours, although nobody looks: %q", o.out)
		}
	}
	return o
}

// says checks that each text is among what was printed, for people or of errors.
func (o outcome) says(t testing.TB, texts ...string) outcome {
	t.Helper()
	all := strings.Join(strings.Fields(o.out+o.err), " ")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q is not in\n%s%s", text, o.out, o.err)
		}
	}
	return o
}

// read reads JSON.
func (o outcome) read(t testing.TB, v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(o.out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil || dec.More() {
		t.Fatalf("%v: %s", err, o.out)
	}
}

var (
	versions = regexp.MustCompile(`(Redis|Valkey) \d+\.\d+\.\d+`)
	// known is what doctor says of a version, in indented lines.
	known = regexp.MustCompile(`(?m)^(\S+: Redis \S+, \w+\n)(  .*\n)+`)
)

// golden compares what was printed with a file. What differs from run to run is replaced.
func (o outcome) golden(t testing.TB, name string, server *redistest.Server) {
	t.Helper()
	text := o.out
	if server != nil {
		text = strings.ReplaceAll(text, server.Addr(), "localhost:6379")
		text = versions.ReplaceAllString(text, "Redis 7.0.15")
		text = known.ReplaceAllString(text, "${1}  This version is tested.\n")
	}
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s:\n%s\nand not\n%s", file, text, want)
	}
}

// real starts a server and returns what its commands need.
func real(t testing.TB, args ...string) (*redistest.Server, []string) {
	t.Helper()
	s := redistest.Start(t, args...)
	return s, to(s)
}

// to returns the flags for a server. The machine may be busy.
func to(s *redistest.Server) []string {
	return []string{"--redis=redis://" + s.Addr(), "--timeout=1m"}
}

// with returns arguments and flags.
func with(flags []string, args ...string) []string { return append(args, flags...) }

func do(t testing.TB, s *redistest.Server, words ...string) {
	t.Helper()
	if _, err := s.Do(words...); err != nil {
		t.Fatal(err)
	}
}

// optionsOf returns those of a patient client.
func optionsOf(addr string) *redis.Options {
	o := hybrid.RedisOptions(addr)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute, time.Minute
	return o
}

func redisClient(t testing.TB, o *redis.Options) *redis.Client {
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// client returns a client of a server.
func client(t testing.TB, s *redistest.Server) *redis.Client {
	return redisClient(t, optionsOf(s.Addr()))
}

// write writes a file and returns its name.
func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fullDisk is an output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What cannot be printed is a failure, whatever is printed.
func TestOutputThatIsFull(t *testing.T) {
	good := write(t, "rules.yaml", someRules)
	for _, args := range [][]string{{"--version"}, {"version"}, {"--help"}, {"peek", "--help"}, {"completion", "bash"}, {"man"}, {"validate", good}, {"validate", "--json", good}} {
		var errOut bytes.Buffer
		p := &program{ctx: t.Context(), out: fullDisk{}, errOut: &errOut}
		if code := p.run(args); code != exitFailed || !strings.Contains(errOut.String(), "no space left on device") {
			t.Errorf("%v: exit code %d, %q", args, code, errOut.String())
		}
	}
}
