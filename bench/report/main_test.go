package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "rewrite the golden page")

// The page that the recorded results in testdata make, by hand checked once.
func TestGolden(t *testing.T) {
	const golden = "testdata/golden.md"
	out := t.TempDir()
	if err := run(t.Context(), []string{"-from", "testdata", "-out", out}, nil, os.Stderr); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the page differs from %s (-update rewrites it):\n%s", golden, got)
	}
}

// The same raw results make the same files, byte for byte.
func TestDeterministic(t *testing.T) {
	read := func() (files map[string]string) {
		out := t.TempDir()
		if err := run(t.Context(), []string{"-from", "testdata", "-out", out}, nil, os.Stderr); err != nil {
			t.Fatal(err)
		}
		files = map[string]string{}
		for _, name := range []string{"README.md", plotChecks, plotAccuracy} {
			text, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(text)
		}
		return files
	}
	first := read()
	for range 3 {
		for name, text := range read() {
			if text != first[name] {
				t.Errorf("%s is another each time", name)
			}
		}
	}
	for _, name := range []string{plotChecks, plotAccuracy} {
		if !strings.HasPrefix(first[name], "<?xml") || !strings.Contains(first[name], "</svg>") {
			t.Errorf("%s is no SVG: %.80q", name, first[name])
		}
	}
}

// lab is a runner that runs nothing.
type lab struct {
	mu   sync.Mutex
	ran  []string
	fail string // commands that contain this fail
}

var errLab = errors.New("broken")

func (l *lab) do(_ context.Context, _ string, words ...string) (string, error) {
	line := strings.Join(words, " ")
	l.mu.Lock()
	l.ran = append(l.ran, line)
	l.mu.Unlock()
	switch {
	case l.fail != "" && strings.Contains(line, l.fail):
		return "", errLab
	case words[0] == "redis-server":
		return "Redis server v=7.0.15 sha=0", nil
	case strings.Contains(line, "mutants"):
		return "overlay.json\n", nil
	case strings.Contains(line, "-figures "):
		return "", os.WriteFile(after(words, "-figures"), []byte("BenchmarkOutage/2.00 1 2.00 s 1 away\n"), 0o600)
	case strings.Contains(line, "-accuracy "):
		file, code := after(words, "-accuracy"), after(words, "-accuracy.name")
		return "", os.WriteFile(file, []byte("BenchmarkAccuracy/sliding-1s/"+code+"/1s 1 2.00 overshoot-%\n"), 0o600)
	}
	return "goos: linux\nBenchmarkAllow/local/hot/serial-1 10 100 ns/op\nPASS\nok  \tbench\t1s\n", nil
}

func after(words []string, flag string) string {
	for i, w := range words {
		if w == flag {
			return words[i+1]
		}
	}
	return ""
}

// All parts are measured and recorded, and the page is made from them.
func TestMeasure(t *testing.T) {
	out, l := t.TempDir(), &lab{}
	if err := run(t.Context(), []string{"-out", out, "-count", "5", "-memory.keys", "77", "-cost.passes", "7", "-small.for", "9s"}, l.do, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	ran := strings.Join(l.ran, "\n")
	for _, want := range []string{
		"-run ^$ -bench . -skip ^BenchmarkMemory$ -count 1 -benchtime 100ms", "./bench -full", "-memory.keys 77", "-overlay overlay.json ./bench -accuracy ",
		"go run ./bench/cost -passes 7 -warm 1s -measure 2s -run .", "go run ./bench/small -for 9s -run .", "go run ./bench/demo -figures ",
	} {
		if !strings.Contains(ran, want) {
			t.Errorf("nobody ran %q:\n%s", want, ran)
		}
	}
	if summary, err := os.ReadFile(filepath.Join(out, "benchstat.txt")); err != nil || len(summary) == 0 {
		t.Errorf("no summary: %q, %v", summary, err)
	}
	if n := strings.Count(ran, "-skip"); n != 5 {
		t.Errorf("%d passes, want 5", n)
	}
	if n := strings.Count(ran, "-overlay overlay.json"); n != 1 {
		t.Errorf("the mutant was measured %d times", n)
	}
	text, err := os.ReadFile(rawFile(out, partBench))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"command: go test -run '^$' -bench .", "redis: 7.0.15\n", "BenchmarkAllow"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "PASS") || strings.Contains(string(text), "ok  ") {
		t.Errorf("not clean:\n%s", text)
	}
	r, err := load(out)
	if err != nil || len(r.accuracy.rows) != 2 || len(r.outage.moments()) != 1 {
		t.Errorf("%d rows of accuracy, %d of the outage, %v", len(r.accuracy.rows), len(r.outage.moments()), err)
	}
	if n := len(r.bench.rows[0].values["ns/op"]); n != 5 {
		t.Errorf("%d figures of 5 passes", n)
	}
}

// A part is measured by itself, and the others stay as recorded.
func TestMeasureOnePart(t *testing.T) {
	out, l := t.TempDir(), &lab{}
	const kept = "BenchmarkMemory/local/funnel/1000000 1 300 B/key\n"
	if err := os.WriteFile(rawFile(out, partMemory), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-out", out, "-parts", "bench"}, l.do, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(rawFile(out, partMemory)); err != nil || string(text) != kept {
		t.Errorf("%q, %v", text, err)
	}
	if page, err := os.ReadFile(filepath.Join(out, "README.md")); err != nil || !strings.Contains(string(page), "| 300 |") {
		t.Errorf("%s, %v", page, err)
	}
}

func TestErrors(t *testing.T) {
	for _, args := range []string{"-from /nowhere", "-parts some", "-none", "more"} {
		if err := run(t.Context(), strings.Fields(args), (&lab{}).do, &strings.Builder{}); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	out := t.TempDir()
	summary := filepath.Join(out, "benchstat.txt")
	if err := os.WriteFile(summary, []byte("of another run"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-out", out, "-parts", "bench"}, (&lab{fail: "benchstat"}).do, &strings.Builder{}); err != nil {
		t.Errorf("without benchstat: %v", err)
	}
	if _, err := os.Stat(summary); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the summary of another run has stayed: %v", err)
	}
	for _, fail := range []string{"-bench .", "mutants", "trigger -accuracy.runs", "bench/cost", "bench/small", "bench/demo"} {
		err := run(t.Context(), []string{"-out", t.TempDir()}, (&lab{fail: fail}).do, &strings.Builder{})
		if !errors.Is(err, errLab) {
			t.Errorf("%s fails: %v", fail, err)
		}
	}
}
