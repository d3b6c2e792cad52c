package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The pages and plots that are recorded are, byte for byte, what the raw files beside them make.
func TestRecorded(t *testing.T) {
	const dir = "../results"
	out := t.TempDir()
	if err := run(t.Context(), []string{"-from", dir, "-out", out}, nil, os.Stderr); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(out)
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files, want 3 pages and 5 plots: %v", len(files), err)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join(out, f.Name()))
		want, wantErr := os.ReadFile(filepath.Join(dir, f.Name()))
		// Other processors round a coordinate in another way.
		if plot := filepath.Ext(f.Name()) == ".svg"; plot && runtime.GOARCH != "amd64" {
			continue
		}
		if err != nil || wantErr != nil || string(got) != string(want) {
			t.Errorf("%s is not what its raw file makes (%v, %v): go run ./bench/report -from bench/results", f.Name(), err, wantErr)
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
	return "goos: linux\nBenchmarkAllow/local/65536/uniform/serial 10 100 ns/op\nPASS\nok  \tbench\t1s\n", nil
}

func after(words []string, flag string) string {
	for i, w := range words {
		if w == flag {
			return words[i+1]
		}
	}
	return ""
}

// All parts are measured and recorded, and a part by itself leaves the others as recorded.
func TestMeasure(t *testing.T) {
	out, l := t.TempDir(), &lab{}
	if err := run(t.Context(), []string{"-out", out, "-count", "5", "-memory.keys", "77", "-cost.passes", "7", "-small.for", "9s"}, l.do, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	ran := strings.Join(l.ran, "\n")
	for want, times := range map[string]int{
		"-run ^$ -bench . -skip ^BenchmarkMemory$ -count 1 -benchtime 100ms": 5, "-memory.keys 77": 1, "-overlay overlay.json ./bench -accuracy ": 1,
		"go run ./bench/cost -passes 7 -warm 1s -measure 2s -run .": 1, "go run ./bench/small -for 9s -run .": 1, "go run ./bench/demo -figures ": 1,
	} {
		if n := strings.Count(ran, want); n != times {
			t.Errorf("%q ran %d times, want %d:\n%s", want, n, times, ran)
		}
	}
	text, err := os.ReadFile(rawFile(out, partBench))
	if err != nil || !strings.HasPrefix(string(text), "command: go test -run '^$' -bench .") || !strings.Contains(string(text), "redis: 7.0.15\n") || strings.Contains(string(text), "PASS") {
		t.Errorf("%v: %s", err, text)
	}
	if err := run(t.Context(), []string{"-out", out, "-parts", "memory"}, l.do, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	r, err := load(out)
	if err != nil || len(r.accuracy.rows) != 2 || len(r.outage.moments()) != 1 || len(r.bench.rows[0].values["ns/op"]) != 5 {
		t.Errorf("%d rows of accuracy, %d of the outage, %v", len(r.accuracy.rows), len(r.outage.moments()), err)
	}
}

func TestErrors(t *testing.T) {
	for _, args := range []string{"-from /nowhere", "-parts some", "-none", "more"} {
		if err := run(t.Context(), strings.Fields(args), (&lab{}).do, &strings.Builder{}); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	for _, fail := range []string{"-bench .", "mutants", "trigger -accuracy.runs", "bench/cost", "bench/small", "bench/demo"} {
		err := run(t.Context(), []string{"-out", t.TempDir()}, (&lab{fail: fail}).do, &strings.Builder{})
		if !errors.Is(err, errLab) {
			t.Errorf("%s fails: %v", fail, err)
		}
	}
}
